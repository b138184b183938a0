// Lists the keys that work in the present view.
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";
import { bindings, isHelpOpen } from "./keys.js";

export function Help() {
  if (!isHelpOpen.value) return null;
  return html`<${HelpDialog} />`;
}

function HelpDialog() {
  const dialog = useRef(null);
  useEffect(() => dialog.current?.showModal(), []);
  const close = () => {
    isHelpOpen.value = false;
  };
  return html`<dialog
    ref=${dialog}
    class="dialog help"
    aria-labelledby="help-title"
    onClose=${close}
    onClick=${(event) => event.target === dialog.current && close()}
  >
    <h2 id="help-title">Keys</h2>
    <dl class="keys">
      ${bindings.value.map(
        ({ key, does }) =>
          html`<div key=${key}>
            <dt>${key.split(" ").map((each) => html`<kbd key=${each}>${each}</kbd>`)}</dt>
            <dd>${does}</dd>
          </div>`,
      )}
    </dl>
    <div class="dialog-actions"><button type="button" class="button" onClick=${close}>Close</button></div>
  </dialog>`;
}
