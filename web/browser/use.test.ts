import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { KEY, launch, openConsole, URL_OF_SERVICE } from "./open";

const JOB = process.env.CONSOLE_JOB ?? "";
const WIDE = { width: 1440, theme: "light" } as const;

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(async () => browser.close());

test("a key signs in, a wrong one says so, and signing out asks for one again", async () => {
  const { page } = await openConsole(browser, WIDE, false);
  await page.goto(`${URL_OF_SERVICE}/jobs`);
  await page.getByLabel("API key").fill("rk-wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("wrong, revoked or expired").waitFor();
  await page.getByLabel("API key").fill(KEY);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Jobs" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in to Rekindle" }).waitFor();
  await page.close();
});

test("filters stay in the address, and a link brings them back", async () => {
  const { page } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/jobs`);
  await page.getByRole("button", { name: /^Succeeded/ }).click();
  await page.getByLabel("Search the jobs").fill("tiny");
  await page.waitForURL(/search=tiny/);
  await page.reload();

  expect(await page.getByLabel("Search the jobs").inputValue()).toBe("tiny");
  expect(await page.getByRole("button", { name: /^Succeeded/ }).getAttribute("aria-pressed")).toBe(
    "true",
  );
  await page.close();
});

test("an evicted job shows its attempts, its evictions and its log", async () => {
  const { page, faults } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/jobs/${JOB}`);
  const attempt = page.getByRole("button", { name: /^Attempt 1:/ });
  await attempt.click();
  await page.getByText("Asking Azure for the machines").first().waitFor();
  await page.getByText(/evicted/).first().waitFor();
  await page.getByLabel("Search the log").fill("step");
  await page.getByText(/lines match/).waitFor();

  expect(await attempt.getAttribute("aria-expanded")).toBe("true");
  expect(faults).toEqual([]);
  await page.close();
});

test("the whole job page can be operated with the keyboard", async () => {
  const { page } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/jobs/${JOB}`);
  const logs = page.getByRole("tab", { name: "Logs" });
  await logs.waitFor();
  await logs.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await page.waitForURL(/tab=events/);
  await page.close();
});
