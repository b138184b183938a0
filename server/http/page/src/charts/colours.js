// Reads the colours of the style sheet for what is drawn on a canvas, which knows no style sheet.
import { signal } from "@preact/signals";

const dark = matchMedia("(prefers-color-scheme: dark)");
export const isDark = signal(dark.matches);
dark.addEventListener("change", () => {
  isDark.value = dark.matches;
});

export const kRunColours = 10;
export const runColour = (index) => `--run-${index % kRunColours}`;

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function withAlpha(hex, alpha) {
  const value = Number.parseInt(hex.slice(1), 16);
  return `rgb(${(value >> 16) & 255} ${(value >> 8) & 255} ${value & 255} / ${alpha})`;
}
