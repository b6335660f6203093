import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { KEY, launch, openConsole, URL_OF_SERVICE } from "./open";

const JOB = process.env.CONSOLE_JOB ?? "";
const TOKEN = process.env.CONSOLE_TOKEN; // of a sign-in link that nobody used
const WIDE = { width: 1440, theme: "light" } as const;

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(async () => browser.close());

test("a key signs in, a wrong one says so, and signing out asks for one again", async () => {
  const { page } = await openConsole(browser, WIDE, null);
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

test.skipIf(TOKEN === undefined)("a link signs in a tab that is signed in, once", async () => {
  const { page } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/settings`);
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  const exchanged = page.waitForResponse("**/v1/sign_in");
  await page.evaluate((token) => location.assign(`#sign-in=${token}`), TOKEN);
  expect((await exchanged).status()).toBe(200);
  await page.waitForFunction(
    (key) => location.hash === "" && sessionStorage.getItem("rekindle.key") !== key,
    KEY,
  );
  await page.getByRole("heading", { name: "Settings" }).waitFor();
  await page.close();

  const other = await openConsole(browser, WIDE, null);
  await other.page.goto(`${URL_OF_SERVICE}/jobs#sign-in=${TOKEN}`);
  await other.page.getByRole("alert").waitFor();
  expect(new URL(other.page.url()).hash).toBe("");
  await other.page.close();
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
  await page
    .getByText(/evicted/)
    .first()
    .waitFor();
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

test("a form that is filled from a job hardly moves on a phone", async () => {
  const { page } = await openConsole(browser, { width: 390, theme: "light" });
  await page.addInitScript(() => {
    const moved = { sum: 0 };
    Object.assign(window, { moved });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) moved.sum += (entry as { value?: number }).value ?? 0;
    }).observe({ type: "layout-shift", buffered: true });
  });
  await page.goto(`${URL_OF_SERVICE}/new?from=${JOB}`);
  await page.getByText("Up to date").waitFor();
  const sum = () => (window as unknown as { moved: { sum: number } }).moved.sum;
  expect(await page.evaluate(sum)).toBeLessThan(0.1);
  await page.close();
});

test("the page that is open is in sight in the navigation of a phone", async () => {
  const { page } = await openConsole(browser, { width: 390, theme: "light" });
  await page.goto(`${URL_OF_SERVICE}/system`);
  const here = page.getByRole("link", { name: "System", exact: true });
  await here.waitFor();
  await page.waitForFunction(
    () =>
      (document.querySelector("[aria-current=page]")?.getBoundingClientRect().right ?? 999) < 391,
  );
  await page.close();
});

test("a very long name, written from right to left, stays within a phone", async () => {
  const { page } = await openConsole(browser, { width: 390, theme: "light" });
  await page.route(/\/v1\/fine_tuning\/jobs(\/[^/?]+)?(\?.*)?$/, async (route) => {
    const answer = await route.fetch();
    const text = await answer.text();
    const name = `\u202e${"مثال/".repeat(12)}`;
    const renamed = text.replace(
      /"user_provided_suffix":\s*(null|"[^"]*")/g,
      () => `"user_provided_suffix":${JSON.stringify(name)}`,
    );
    await route.fulfill({ response: answer, body: renamed });
  });
  await page.route(/\/stream$/, (route) => route.abort()); // they tell the real name
  for (const path of ["/jobs", `/jobs/${JOB}`]) {
    await page.goto(URL_OF_SERVICE + path);
    await page.getByText("مثال").first().waitFor();
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThan(391);
  }
  await page.close();
});
