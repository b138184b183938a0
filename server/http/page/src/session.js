// Signs in with the code of a link that `trainyard web` has printed, and knows who is signed in.
import { signal } from "@preact/signals";
import { call } from "./api.js";
import { isSignedOut } from "./connection.js";

// The answer of WhoAmI; null before it is known.
export const me = signal(null);

// Exchanges the code in the address, if there is one, for a session. The code leaves the address first, so that it is
// in no history and in nobody's screenshot. Returns the reason why it failed, or an empty text.
export async function takeCode() {
  const match = /^#code=([^&]+)$/.exec(location.hash);
  if (!match) return "";
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const response = await fetch("/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code: decodeURIComponent(match[1]) }),
    });
    if (response.ok) {
      isSignedOut.value = false;
      return "";
    }
    return "This link was used before, or it is too old.";
  } catch {
    return "The server does not answer.";
  }
}

export async function learnWho() {
  try {
    me.value = await call("AccessService/WhoAmI");
  } catch {
    // The page shows by itself that it is disconnected or signed out; the next return asks again.
  }
}

export async function signOut() {
  try {
    await fetch("/session", { method: "DELETE" });
  } finally {
    me.value = null;
    isSignedOut.value = true;
  }
}

const kRoles = ["ROLE_NONE", "ROLE_VIEWER", "ROLE_SUBMITTER", "ROLE_OPERATOR", "ROLE_ADMIN"];
const rank = () => kRoles.indexOf(me.value?.role);

export const maySubmit = () => rank() >= kRoles.indexOf("ROLE_SUBMITTER");

// True if the user may change what belongs to `owner`.
export const mayChange = (owner) =>
  rank() >= kRoles.indexOf("ROLE_OPERATOR") || (maySubmit() && owner === me.value?.user);
