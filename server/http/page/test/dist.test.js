import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const dist = new URL("../dist/", import.meta.url);
const assets = readdirSync(new URL("assets/", dist));
const read = (name) => readFileSync(new URL(name, dist));

test("all scripts together have at most 80 KB, compressed", () => {
  const scripts = assets.filter((name) => name.endsWith(".js"));
  assert.ok(scripts.length > 0);
  const bytes = scripts.reduce((sum, name) => sum + gzipSync(read(`assets/${name}`)).length, 0);
  assert.ok(bytes <= 80 * 1000, `they have ${bytes} bytes`);
});

test("the page holds no script, style or image itself, as the policy of the server asks", () => {
  const page = String(read("index.html"));
  assert.doesNotMatch(page, /<script(?![^>]*\ssrc=)[^>]*>/);
  assert.doesNotMatch(page, /<style|\sstyle=|\son[a-z]+=|data:/);
});

test("the page names each built file, and no other host", () => {
  const page = String(read("index.html"));
  const named = [...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, address]) => address);
  assert.deepEqual(named.toSorted(), assets.map((name) => `/assets/${name}`).toSorted());
});

test("no script makes code of texts, and no source makes markup of them", () => {
  const forbidden = /\beval\(|new Function\(|document\.write/;
  for (const name of assets.filter((each) => each.endsWith(".js"))) {
    assert.ok(!forbidden.test(String(read(`assets/${name}`))), name);
  }
  const source = new URL("../src/", import.meta.url);
  for (const name of readdirSync(source, { recursive: true }).filter((each) => each.endsWith(".js"))) {
    assert.ok(!/innerHTML|outerHTML|insertAdjacentHTML/i.test(String(readFileSync(new URL(name, source)))), name);
  }
});
