// Reads the colours that programs print for terminals. Only colours and weights are kept, as names of classes; every
// other control is left out, so a log cannot move anything or draw over anything.

const kColours = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

// Splits a line into pieces {text, classes} and returns them with the style that the next line begins with.
export function parseAnsi(line, style = {}) {
  const pieces = [];
  const add = (text) => {
    const plain = dropControls(text);
    if (plain === "") return;
    const classes = classesOf(style);
    const before = pieces[pieces.length - 1];
    if (before && before.classes === classes) before.text += plain;
    else pieces.push({ text: plain, classes });
  };
  // CSI sequences, OSC sequences up to their end, and other escapes of two bytes.
  const sequence = /\u001b(?:\[([0-9;:?<=>]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;
  let at = 0;
  for (const match of line.matchAll(sequence)) {
    add(line.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] === "m") style = applyStyle(style, match[1]);
  }
  add(line.slice(at));
  return { pieces, style };
}

// The line as plain text, for searches and copies.
export const plainText = (line) =>
  parseAnsi(line)
    .pieces.map(({ text }) => text)
    .join("");

// Returns what a terminal shows of a line in which a program has returned to its beginning.
export function afterReturns(line) {
  const parts = line.replace(/\r+$/, "").split("\r");
  return parts[parts.length - 1];
}

function dropControls(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "");
}

function applyStyle(style, parameters) {
  const codes = parameters === "" ? [0] : parameters.split(/[;:]/).map(Number);
  let result = { ...style };
  for (let i = 0; i < codes.length; ++i) {
    const code = codes[i];
    if (code === 0) result = {};
    else if (code === 1) result.bold = true;
    else if (code === 2) result.dim = true;
    else if (code === 3) result.italic = true;
    else if (code === 4) result.underline = true;
    else if (code === 7) result.inverse = true;
    else if (code === 22) result.bold = result.dim = false;
    else if (code === 23) result.italic = false;
    else if (code === 24) result.underline = false;
    else if (code === 27) result.inverse = false;
    else if (code >= 30 && code <= 37) result.colour = kColours[code - 30];
    else if (code >= 90 && code <= 97) result.colour = kColours[code - 90];
    else if (code === 39) result.colour = undefined;
    else if (code >= 40 && code <= 47) result.background = kColours[code - 40];
    else if (code === 49) result.background = undefined;
    else if (code === 38 || code === 48) {
      const name = codes[i + 1] === 5 ? nameOf256(codes[i + 2]) : undefined;
      if (code === 38) result.colour = name;
      else result.background = name;
      i += codes[i + 1] === 5 ? 2 : codes[i + 1] === 2 ? 4 : 0;
    }
  }
  return result;
}

const nameOf256 = (code) => (code < 16 ? kColours[code % 8] : undefined);

function classesOf(style) {
  const classes = [];
  for (const name of ["bold", "dim", "italic", "underline", "inverse"]) if (style[name]) classes.push(`ansi-${name}`);
  if (style.colour) classes.push(`ansi-${style.colour}`);
  if (style.background) classes.push(`ansi-on-${style.background}`);
  return classes.join(" ");
}

// A message of the server without what is left of a terminal's controls, which the server writes as "?[33m".
export const plainMessage = (text) => plainText(text).replace(/\?\[[0-9;]*m/g, "");
