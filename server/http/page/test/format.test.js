import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../src/pure/format.js";

test("durations have two units at most", () => {
  assert.equal(format.duration(0), "0 s");
  assert.equal(format.duration(0.34), "340 ms");
  assert.equal(format.duration(9.96), "10.0 s");
  assert.equal(format.duration(59.4), "59 s");
  assert.equal(format.duration(245), "4 m 05 s");
  assert.equal(format.duration(3 * 3600 + 61), "3 h 01 m");
  assert.equal(format.duration(2 * 86400 + 3 * 3600), "2 d 3 h");
  assert.equal(format.duration(undefined), "–");
});

test("times ago are whole units", () => {
  assert.equal(format.ago(1000, 1500), "now");
  assert.equal(format.ago(1000, 4900), "3 s ago");
  assert.equal(format.ago(0, 3 * 3600e3), "3 h ago");
  assert.equal(format.ago(5000, 1000), "now");
});

test("numbers keep four digits that count", () => {
  assert.equal(format.number(0.90321), "0.9032");
  assert.equal(format.number("1234"), "1,234");
  assert.equal(format.number(3.21e-7), "3.21e-7");
  assert.equal(format.number("NaN"), "NaN");
  assert.equal(format.number("-Infinity"), "−∞");
  assert.equal(format.number(undefined), "–");
});

test("accuracies are percentages", () => {
  assert.equal(format.metric("test.accuracy", 0.912), "91.2%");
  assert.equal(format.metric("test.top5", 1), "100%");
  assert.equal(format.metric("train.loss", 0.912), "0.912");
});

test("exit codes above 128 name the signal", () => {
  assert.equal(format.exitText(0), "");
  assert.equal(format.exitText(3), "exit code 3");
  assert.equal(format.exitText(137), "killed by SIGKILL (exit code 137)");
});

test("sizes have binary units", () => {
  assert.equal(format.bytes("340"), "340 B");
  assert.equal(format.bytes(1.25 * 1024 * 1024), "1.3 MiB");
});

test("it is known of metrics which way is better", () => {
  assert.equal(format.direction("test.accuracy"), "more");
  assert.equal(format.direction("train.loss"), "less");
  assert.equal(format.direction("lr"), "");
});
