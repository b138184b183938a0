// Small pieces that many views share.
import { useEffect, useRef, useState } from "preact/hooks";
import { sayError } from "./api.js";
import { html, classes } from "./html.js";
import { clock, duration, isActive, jobState, number, word } from "./pure/format.js";

export function State({ state, large }) {
  const name = jobState(state);
  return html`<span class=${classes("state", `state-${name}`, large && "state-large")}>${name}</span>`;
}

// The share of the steps that are done; a bar for those who see, and numbers for all.
export function Progress({ row, large }) {
  if (!row.totalSteps) return row.step > 0 ? html`<span class="num">${number(row.step)}</span>` : "";
  const share = Math.min(1, row.step / row.totalSteps);
  return html` <span
    class=${classes("progress", large && "progress-large", `bar-${jobState(row.state)}`)}
    role="progressbar"
    aria-valuemin="0"
    aria-valuemax=${row.totalSteps}
    aria-valuenow=${row.step}
    aria-label="progress"
    title=${`step ${number(row.step)} of ${number(row.totalSteps)}`}
  >
    <span class="progress-track"><span class="progress-fill" style=${{ width: `${share * 100}%` }}></span></span>
    <span class="progress-text"
      >${Math.floor(share * 100)}%${
        large && isActive(row.state) && row.eta !== undefined ? ` · ${duration(row.eta)} left` : ""
      }</span
    >
  </span>`;
}

export function Verified({ verified }) {
  if (!verified?.runs) return null;
  const good = verified.reproduced ?? 0;
  const last = word(verified.last_result, "VERIFICATION_RESULT_");
  const text = `run again ${verified.runs} times, reproduced ${good}; the last was ${last}`;
  return html`<span
    class=${classes("verified", good < verified.runs && "verified-not")}
    title=${text}
    aria-label=${text}
    >${good === verified.runs ? "✓" : "≠"} ${good}/${verified.runs}</span
  >`;
}

// An error of a call, with the fields that are wrong.
export function ErrorBox({ error, children }) {
  if (!error) return null;
  return html`<div class="error-box" role="alert">
    <p class="error-text">${sayError(error)}</p>
    ${children}
  </div>`;
}

export function Empty({ title, children }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    <div class="empty-text">${children}</div>
  </div>`;
}

export const Time = ({ ms }) => html`<time title=${ms ? new Date(ms).toISOString() : ""}>${clock(ms)}</time>`;

export const Code = ({ children }) => html`<code class="code">${children}</code>`;

// A button that opens a panel below it; Escape and clicks elsewhere close it.
export function Menu({ label, title, children, align, kind = "button" }) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    const click = (event) => !root.current?.contains(event.target) && setOpen(false);
    const key = (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    };
    document.addEventListener("pointerdown", click);
    document.addEventListener("keydown", key, true);
    return () => {
      document.removeEventListener("pointerdown", click);
      document.removeEventListener("keydown", key, true);
    };
  }, [isOpen]);
  return html`<span class="menu" ref=${root}>
    <button
      type="button"
      class=${kind}
      aria-expanded=${isOpen}
      title=${title}
      aria-label=${title}
      onClick=${() => setOpen(!isOpen)}
    >
      ${label}
    </button>
    ${
      isOpen &&
      html`<div
        class=${classes("menu-panel", align === "right" && "menu-right")}
        onClick=${(event) => event.target.closest("[data-close]") && setOpen(false)}
      >
        ${children}
      </div>`
    }
  </span>`;
}

// Asks before something is done that cannot be undone at once.
export function Confirm({ title, text, action, kind, onYes, onNo, children }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => dialog.current?.showModal(), []);
  const yes = async () => {
    setBusy(true);
    setError(null);
    try {
      await onYes();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="confirm-title" onCancel=${onNo} onClose=${onNo}>
    <h2 id="confirm-title">${title}</h2>
    <p>${text}</p>
    ${children}
    <${ErrorBox} error=${error} />
    <div class="dialog-actions">
      <button type="button" class="button" onClick=${onNo}>Go back</button>
      <button type="button" class=${classes("button", kind ?? "button-primary")} disabled=${isBusy} onClick=${yes}>
        ${action}
      </button>
    </div>
  </dialog>`;
}

// Hands a file to the browser.
export function download(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
