import assert from "node:assert/strict";
import { test } from "node:test";
import { afterReturns, parseAnsi, plainText } from "../src/pure/ansi.js";

test("colours become classes", () => {
  const { pieces, style } = parseAnsi("a\u001b[1;31mred\u001b[0mb");
  assert.deepEqual(pieces, [
    { text: "a", classes: "" },
    { text: "red", classes: "ansi-bold ansi-red" },
    { text: "b", classes: "" },
  ]);
  assert.deepEqual(style, {});
});

test("a colour lasts to the next line", () => {
  const { style } = parseAnsi("\u001b[32mgreen");
  assert.deepEqual(parseAnsi("still", style).pieces, [{ text: "still", classes: "ansi-green" }]);
});

test("controls are left out", () => {
  assert.equal(plainText("a\u001b[2J\u001b[Hb\u0007\u0008c"), "abc");
  assert.equal(plainText("\u001b]0;title\u0007x\u001b]8;;javascript:alert(1)\u001b\\link"), "xlink");
  assert.equal(plainText("admin\u202etxt"), "admintxt");
});

test("markup stays text", () => {
  const text = "<script>alert(1)</script>";
  assert.deepEqual(parseAnsi(text).pieces, [{ text, classes: "" }]);
});

test("colours of 256 and of 24 bits do not disturb what follows", () => {
  assert.deepEqual(parseAnsi("\u001b[38;5;1mx").pieces[0].classes, "ansi-red");
  assert.deepEqual(parseAnsi("\u001b[38;2;1;2;3;1mx").pieces[0].classes, "ansi-bold");
});

test("progress bars show what was written last", () => {
  assert.equal(afterReturns("10%\r50%\r100%\r"), "100%");
});
