// The frame around every view: the ways to the views, who is signed in, and how fresh all of it is.
import { useEffect } from "preact/hooks";
import { isConnected, isSignedOut, lastHeard, now, returns } from "./connection.js";
import { Help } from "./help.js";
import { html, classes } from "./html.js";
import { isHelpOpen, useKeys } from "./keys.js";
import { ago, clock, word } from "./pure/format.js";
import { go, Link, route } from "./router.js";
import { learnWho, me, signIn, signInError, signOut } from "./session.js";
import { viewOf } from "./views.js";
import { Menu } from "./widgets.js";

const kPlaces = [
  ["/", "Runs", "g r"],
  ["/queue", "Queue", "g q"],
  ["/schedule", "Schedule", "g t"],
  ["/devices", "Devices", "g d"],
  ["/sweeps", "Sweeps", "g s"],
  ["/specs", "Specs", "g p"],
  ["/usage", "Usage", "g u"],
];

export function App() {
  useEffect(() => {
    learnWho();
  }, [returns.value, isSignedOut.value]);
  useKeys([
    ...kPlaces.map(([path, title, key]) => ({ key, does: `go to ${title.toLowerCase()}`, action: () => go(path) })),
    {
      key: "?",
      does: "show these keys",
      action: () => {
        isHelpOpen.value = true;
      },
    },
  ]);
  const { path } = route.value;
  if (isSignedOut.value) return html`<${SignedOut} />`;
  const { view: View, props, title } = viewOf(path);
  useTitle(title);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header class="top">
      <${Link} href="/" class="brand" aria-label="Trainyard, all runs">
        <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">
          <path class="brand-rail" d="M3 2v16M17 2v16" /><path class="brand-tie" d="M1 6h18M1 10h12M1 14h18" />
        </svg><span class="brand-name">Trainyard</span></${Link}>
      <nav class="nav" aria-label="Views">
        ${kPlaces.map(([to, name]) => {
          const isHere = to === "/" ? path === "/" || /^\/(jobs|compare)/.test(path) : path.startsWith(to);
          return html`<${Link} key=${to} href=${to} class=${classes("nav-link", isHere && "nav-here")}
            aria-current=${isHere ? "page" : undefined}>${name}</${Link}>`;
        })}
      </nav>
      <span class="spacer"></span>
      <${Freshness} />
      <${Menu} kind="button button-quiet" label=${me.value?.user ?? "…"} title=${`${me.value?.user ?? ""}, account`}
        align="right">
        <div class="account"><strong>${me.value?.user}</strong>
          <span class="dim">${word(me.value?.role, "ROLE_")}${
            me.value?.real_user ? `, by ${me.value.real_user}` : ""
          }</span>
          <span class="dim">server ${me.value?.server_version}</span></div>
        <button type="button" class="menu-item" data-close onClick=${() => {
          isHelpOpen.value = true;
        }}>
          Keys <kbd>?</kbd></button>
        <button type="button" class="menu-item" data-close onClick=${signOut}>Sign out</button>
      </${Menu}>
    </header>
    ${
      !isConnected.value &&
      html`<div class="stale" role="status">
        The server does not answer. ${" "}
        ${lastHeard.value ? `What you see is of ${clock(lastHeard.value).slice(11)}. ` : ""}The page goes on by
        itself once the server is back.
      </div>`
    }
    <${View} key=${props.key ?? path} ...${props} />
    <${Help} />`;
}

function useTitle(title) {
  useEffect(() => {
    document.title = title === "Runs" ? "Trainyard" : `${title} · Trainyard`;
  }, [title]);
}

// Says how old what is shown may be. Screen readers hear of changes of the connection alone, not of each second.
function Freshness() {
  const isGood = isConnected.value;
  if (!lastHeard.value) return html`<span class="fresh fresh-wait">Connecting</span>`;
  return html`<span class=${classes("fresh", isGood ? "fresh-good" : "fresh-bad")}>
    <span role="status">${isGood ? "Live" : "Disconnected"}</span>
    <span class="fresh-ago num">updated ${ago(lastHeard.value, Math.max(now.value, lastHeard.value))}</span></span
  >`;
}

function SignedOut() {
  const submit = (event) => {
    event.preventDefault();
    signIn(new FormData(event.currentTarget).get("token"));
  };
  return html`<main class="signed-out" id="main">
    <h1>Trainyard</h1>
    <p>You are not signed in here. Run this where you use Trainyard, and open the link that it prints:</p>
    <pre class="command">trainyard web</pre>
    <p>Or sign in with a token, which <code>trainyard tokens create</code> makes:</p>
    <form class="token-form" onSubmit=${submit}>
      <input class="input" type="password" name="token" aria-label="Token" placeholder="tyk_…" autocomplete="off" required />
      <button class="button" type="submit">Sign in</button>
    </form>
    ${signInError.value && html`<p class="error-text" role="alert">${signInError.value}</p>`}
  </main>`;
}
