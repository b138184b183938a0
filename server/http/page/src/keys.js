// Handles keys: each view registers its own, and "?" lists them all.
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

// The keys that count now: [{key, does, action}], the newest last.
export const bindings = signal([]);
export const isHelpOpen = signal(false);

let prefix = "";
let prefixTimer = null;

const isTyping = (element) =>
  element instanceof HTMLElement &&
  (element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName)) &&
  element.type !== "checkbox";

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape" && isTyping(event.target)) {
    event.target.blur();
    return;
  }
  if (isTyping(event.target) || document.querySelector("dialog[open]:not(.help)")) return;
  const key = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  const onControl = event.target.closest?.("a, button, summary");
  if (event.key === "Enter" && onControl) return;
  const binding = bindings.value.findLast((each) => each.key === key);
  if (binding) {
    event.preventDefault();
    binding.action();
  } else if (bindings.value.some((each) => each.key.startsWith(`${event.key} `))) {
    prefix = event.key;
    clearTimeout(prefixTimer);
    prefixTimer = setTimeout(() => {
      prefix = "";
    }, 1200);
  }
});

// Registers keys while a component is shown. What they do may change with each rendering, and counts at once.
export function useKeys(list) {
  const latest = useRef(list);
  latest.current = list;
  useEffect(() => {
    const mine = list.map(({ key, does }, index) => ({ key, does, action: () => latest.current[index].action() }));
    bindings.value = [...bindings.value, ...mine];
    return () => {
      bindings.value = bindings.value.filter((each) => !mine.includes(each));
    };
  }, [list.map(({ key }) => key).join()]);
}
