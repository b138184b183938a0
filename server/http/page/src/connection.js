// Knows how fresh the page is: when something was last heard of the server, and whether it answers now.
import { signal } from "@preact/signals";

// The time of the last answer, event or comment; 0 before the first.
export const lastHeard = signal(0);
// True unless the last attempt to reach the server has failed.
export const isConnected = signal(true);
// True once the server has said that nobody is signed in.
export const isSignedOut = signal(false);
// Grows whenever the server answers again after it did not: views load anew what no stream has told them.
export const returns = signal(0);
// The time now, by the second while the page is visible.
export const now = signal(Date.now());
// True while nobody looks at the page.
export const isHidden = signal(document.hidden);

export function heard() {
  lastHeard.value = Date.now();
  if (!isConnected.value) {
    isConnected.value = true;
    returns.value += 1;
  }
}

export function lost() {
  isConnected.value = false;
}

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

document.addEventListener("visibilitychange", () => {
  isHidden.value = document.hidden;
  now.value = Date.now();
});
