// Signs in and out, and knows who is signed in. `trainyard web` signs its browser in before the page is there.
import { signal } from "@preact/signals";
import { call } from "./api.js";
import { isSignedOut } from "./connection.js";

// The answer of WhoAmI; null before it is known.
export const me = signal(null);

// The reason why the last token was refused, or an empty text.
export const signInError = signal("");

// Signs in with a token, which the browser then keeps in a cookie that no script can read.
export async function signIn(token) {
  signInError.value = await tryToken(token);
}

async function tryToken(token) {
  try {
    const response = await fetch("/session", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token: token.trim() }),
    });
    if (!response.ok) return (await response.json().catch(() => ({}))).message ?? "The server refuses this token.";
    // Only a call says whether the token is valid.
    isSignedOut.value = false;
    me.value = await call("AccessService/WhoAmI");
    return "";
  } catch (error) {
    return isSignedOut.value ? `The token is not valid: ${error.message}` : "The server does not answer.";
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
