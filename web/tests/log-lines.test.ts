import { expect, test } from "vitest";
import { logLines } from "../src/pages/job/log-lines";

test("a line that comes in pieces is one line", () => {
  const take = logLines();
  take("step 1\nst");

  expect(take("ep 2\r\n")).toEqual({ lines: ["step 1", "step 2"], dropped: false });
});

test("a progress bar shows its last state, and colours are left out", () => {
  const take = logLines();

  expect(take("10 %\r\u001b[32m90 %\u001b[0m\r").lines).toEqual(["90 %"]);
});

test("a log of days keeps its last lines only", () => {
  const take = logLines(10);
  const { lines, dropped } = take(Array.from({ length: 11 }, (_, at) => `${at}\n`).join(""));

  expect([lines[0], lines.at(-1), dropped]).toEqual(["3", "10", true]);
});

test("a line of a megabyte is cut, and says so", () => {
  const [line] = logLines()("x".repeat(1_000_000)).lines;

  expect(line?.length).toBeLessThan(5_000);
  expect(line).toMatch(/996000 more characters/);
});
