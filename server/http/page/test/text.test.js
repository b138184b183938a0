import assert from "node:assert/strict";
import { test } from "node:test";
import { toCsv } from "../src/pure/csv.js";
import { whereOf } from "../src/pure/expression.js";
import { bytesOf, LineCutter } from "../src/pure/lines.js";
import { eventParser } from "../src/pure/sse.js";

test("CSV quotes what it must", () => {
  assert.equal(
    toCsv(
      ["a", "b"],
      [
        ['x "y"', "1,2"],
        [null, -3.5],
      ],
    ),
    'a,b\r\n"x ""y""","1,2"\r\n,-3.5\r\n',
  );
});

test("CSV holds no formulas", () => {
  assert.equal(toCsv(["n"], [["=1+1"], ["-0.5"], ["@x"]]), "n\r\n'=1+1\r\n-0.5\r\n'@x\r\n");
});

test("events come whole from any pieces", () => {
  const events = [];
  let comments = 0;
  const parse = eventParser(
    (event) => events.push(event),
    () => ++comments,
  );
  const text = ': hello\n\nid: 1;0=5\ndata: {"a":\ndata: 1}\r\n\nevent: end\ndata: {}\n\n';
  for (const letter of text) parse(letter);
  assert.equal(comments, 1);
  assert.deepEqual(events, [
    { type: "message", data: '{"a":\n1}', id: "1;0=5" },
    { type: "end", data: "{}", id: undefined },
  ]);
});

test("lines know where they begin", () => {
  const cutter = new LineCutter();
  const encoder = new TextEncoder();
  const whole = encoder.encode("first\nsecönd\nrest");
  const lines = [...cutter.add(100, whole.slice(0, 9)), ...cutter.add(109, whole.slice(9))];
  assert.deepEqual(
    lines.map(({ offset, text }) => [offset, text]),
    [
      [100, "first"],
      [106, "secönd"],
    ],
  );
  assert.equal(cutter.rest().text, "rest");
  assert.deepEqual(bytesOf("aGk="), new Uint8Array([104, 105]));
});

test("bytes after a gap begin a new line", () => {
  const cutter = new LineCutter();
  cutter.add(0, new TextEncoder().encode("lost"));
  const lines = cutter.add(50, new TextEncoder().encode("new\n"));
  assert.deepEqual(
    lines.map(({ offset, text }) => [offset, text]),
    [[50, "new"]],
  );
});

test("words become an expression, and expressions stay", () => {
  assert.equal(whereOf("  "), "");
  assert.equal(whereOf("test.accuracy > 0.9"), "test.accuracy > 0.9");
  assert.match(whereOf("resnet 'x"), /name ~ 'resnet'.* and .*name ~ 'x'/);
  assert.match(whereOf("#12"), /id = 12/);
});
