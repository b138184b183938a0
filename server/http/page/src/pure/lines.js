// Cuts the bytes of a log into lines that know where they begin, whatever pieces the bytes come in.
import { afterReturns, parseAnsi } from "./ansi.js";

// The bytes of a base64 text.
export function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
}

const kLineBytesMax = 16 * 1024;

// Collects the lines of one rank. `add` takes the offset of the bytes and the bytes, and returns the lines that are
// complete; `rest` is the line that is not, or null.
export class LineCutter {
  #pending = new Uint8Array(0);
  #pendingOffset = 0;
  #style = {};
  #decoder = new TextDecoder("utf-8");

  add(offset, bytes) {
    if (offset !== this.#pendingOffset + this.#pending.length) {
      this.#pending = new Uint8Array(0);
      this.#pendingOffset = offset;
    }
    const joined = new Uint8Array(this.#pending.length + bytes.length);
    joined.set(this.#pending);
    joined.set(bytes, this.#pending.length);
    const lines = [];
    let begin = 0;
    for (let i = 0; i < joined.length; ++i) {
      if (joined[i] !== 10 && i - begin < kLineBytesMax) continue;
      const end = joined[i] === 10 ? i : i + 1;
      lines.push(this.#line(this.#pendingOffset + begin, joined.subarray(begin, end), true));
      begin = i + 1;
    }
    this.#pending = joined.slice(begin);
    this.#pendingOffset += begin;
    return lines;
  }

  rest() {
    return this.#pending.length === 0 ? null : this.#line(this.#pendingOffset, this.#pending, false);
  }

  #line(offset, bytes, keepStyle) {
    const { pieces, style } = parseAnsi(afterReturns(this.#decoder.decode(bytes)), this.#style);
    if (keepStyle) this.#style = style;
    return { offset, pieces, text: pieces.map(({ text }) => text).join("") };
  }
}
