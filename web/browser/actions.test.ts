/** What people do with jobs, from an upload to the end, on a running service. */

import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { KEY, launch, openConsole, URL_OF_SERVICE } from "./open";

const JOB = process.env.CONSOLE_JOB ?? "";
const NEWCOMERS_KEY = process.env.CONSOLE_NEW_KEY ?? ""; // of a project without jobs
const WIDE = { width: 1440, theme: "light" } as const;
const ROWS = ["river", "stone", "cloud", "ember"].map((word) => ({
  messages: [
    { role: "user", content: `Say ${word}` },
    { role: "assistant", content: word },
  ],
}));

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(async () => browser.close());

const lines = (rows: unknown[]) => Buffer.from(rows.map((row) => JSON.stringify(row)).join("\n"));

async function request(path: string, init: RequestInit = {}) {
  const headers = { authorization: `Bearer ${KEY}`, "content-type": "application/json" };
  const answer = await fetch(`${URL_OF_SERVICE}/v1${path}`, { headers, ...init });
  expect(answer.status, await answer.clone().text()).toBeLessThan(300);
  return answer.json();
}

/** Create jobs; returns their ids. */
async function createJobs(suffixes: string[]): Promise<string[]> {
  const { model, training_file } = await request(`/fine_tuning/jobs/${JOB}`);
  const bodies = suffixes.map((suffix) => JSON.stringify({ model, training_file, suffix }));
  const jobs = bodies.map((body) => request("/fine_tuning/jobs", { method: "POST", body }));
  return (await Promise.all(jobs)).map(({ id }) => id);
}

/** Press a button of the page, read what it costs, and agree. */
async function agree(page: Page, button: string, cost: RegExp, action = button) {
  await page.getByRole("button", { name: button, exact: true }).click();
  const dialog = page.getByRole("alertdialog");
  await dialog.getByText(cost).waitFor();
  await dialog.getByRole("button", { name: action, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
}

test("a job is created from an upload, paused, resumed, limited and cancelled", async () => {
  const { page } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/new`);
  const upload = page.getByLabel("Upload: training file");
  const bad = Buffer.concat([lines(ROWS), Buffer.from("\nnot JSON\n")]);
  await upload.setInputFiles({ name: "bad.jsonl", mimeType: "application/jsonl", buffer: bad });
  const wrong = page.getByRole("region", { name: "Wrong lines of bad.jsonl" });
  await wrong.getByRole("cell", { name: "5", exact: true }).waitFor();

  await upload.setInputFiles({
    name: "t.jsonl",
    mimeType: "application/jsonl",
    buffer: lines(ROWS),
  });
  await page.getByText(/^1 warning/).waitFor(); // too few rows
  await page.getByLabel("Base model").selectOption({ index: 1 });
  await page.getByLabel("Rows of the training file").getByText("ember").first().waitFor();
  expect(await page.getByLabel("Method").inputValue()).toBe("supervised");
  await page.getByLabel("Suffix of the name").fill("by-hand");
  await page.getByText("Chosen", { exact: true }).waitFor();
  await page.getByLabel("Budget of the plot").press("ArrowLeft");
  await page.getByText("Up to date").waitFor();
  expect(await page.getByLabel("Budget", { exact: true }).inputValue()).toMatch(/^\d+\.\d\d$/);
  await page.getByRole("button", { name: "Create job" }).click();
  await page.waitForURL(/\/jobs\/ftjob-/);

  await agree(page, "Pause", /costs \$[\d.]+ a month for storage/);
  await agree(page, "Resume", /it costs about \$[\d.]+ more/);
  await page.getByRole("button", { name: "Change limits" }).click();
  const limits = page.getByRole("alertdialog");
  await limits.getByText(/^Spent \$[\d.]+\. Forecast \$[\d.]+/).waitFor();
  await limits.getByLabel("Budget").fill("7.50");
  await limits.getByRole("button", { name: "Save" }).click();
  await limits.waitFor({ state: "detached" });
  const id = page.url().split("/").at(-1);
  expect((await request(`/fine_tuning/jobs/${id}`)).infrastructure.budget.amount).toBe("7.50");
  await agree(page, "Cancel", /\$[\d.]+ is spent.*cannot be resumed/, "Cancel the job");
  await page.getByText("Cancelled").first().waitFor();
  await page.close();
});

test("jobs that are chosen in the list are compared, paused and cancelled together", async () => {
  await createJobs(["both-1", "both-2"]);
  const { page, faults } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/jobs?search=both-`);
  for (const name of ["both-1", "both-2"]) await page.getByLabel(`Select ${name}`).first().check();
  await page.getByText("2 selected").waitFor();
  await page.getByRole("link", { name: "Compare", exact: true }).last().click();
  await page.getByText("Shown jobs").waitFor();
  expect(page.url()).toMatch(/compare\?jobs=.*ftjob-.*ftjob-/);
  await page.goBack();
  expect(await page.getByLabel("Search the jobs").inputValue()).toBe("both-");

  for (const name of ["both-1", "both-2"]) await page.getByLabel(`Select ${name}`).first().check();
  await agree(page, "Pause", /Each saves a checkpoint/);
  const paused = page.getByRole("row", { name: /both-.*Paused/ });
  await paused.nth(1).waitFor({ timeout: 60_000 });

  for (const name of ["both-1", "both-2"]) await page.getByLabel(`Select ${name}`).first().check();
  const cost = /\$[\d.]+ is spent on them/;
  await agree(page, "Cancel", cost, "Cancel 2 jobs");
  await page
    .getByRole("row", { name: /both-1.*Cancelled/ })
    .first()
    .waitFor();
  await page
    .getByRole("row", { name: /both-2.*Cancelled/ })
    .first()
    .waitFor();
  expect(faults).toEqual([]);
  await page.close();
});

test.skipIf(NEWCOMERS_KEY === "")(
  "whoever has no job yet starts the sample with one click",
  async () => {
    const { page, faults } = await openConsole(browser, WIDE, NEWCOMERS_KEY);
    await page.goto(`${URL_OF_SERVICE}/jobs`);
    await page.getByRole("heading", { name: "Welcome to Rekindle" }).waitFor();
    await page.getByRole("button", { name: "Start a sample job" }).click();
    await page.waitForURL(/\/jobs\/ftjob-/);
    await page.getByRole("heading", { level: 1, name: "sample" }).waitFor();
    await agree(page, "Cancel", /cannot be resumed/, "Cancel the job");
    await page.getByText("Cancelled").first().waitFor();
    expect(faults).toEqual([]);
    await page.close();
  },
);

test("a link to all jobs drops the search, and it does not come back", async () => {
  const { page } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/jobs?search=135`);
  const search = page.getByLabel("Search the jobs");
  await search.waitFor();
  expect(await search.inputValue()).toBe("135"); // digits in the address are a text
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.waitForFunction(
    () => document.querySelector<HTMLInputElement>("input[type=search]")?.value === "",
  );
  expect(new URL(page.url()).search).toBe("");
  await page.close();
});

test("without TLS, where the browser has no clipboard, a command is copied", async () => {
  const { page, faults } = await openConsole(browser, WIDE);
  await page.addInitScript(() => {
    Object.defineProperty(navigator, "clipboard", { value: undefined });
  });
  await page.goto(`${URL_OF_SERVICE}/jobs/${JOB}?tab=configuration`);
  await page.getByRole("button", { name: "Copy", exact: true }).first().click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  expect(faults).toEqual([]);
  await page.close();
});

/** Press Tab until the element of this name has the focus. */
async function tabTo(page: Page, name: RegExp, key: "Tab" | "Shift+Tab" = "Tab") {
  const focused = () => {
    const element = document.activeElement;
    return element?.getAttribute("aria-label") ?? element?.textContent ?? "";
  };
  for (let at = 0; at < 60; at += 1) {
    await page.keyboard.press(key);
    if (name.test(await page.evaluate(focused))) return;
  }
  throw new Error(`Tab does not reach ${name}`);
}

test("a job is found, selected and cancelled with the keyboard alone", async () => {
  const [id] = await createJobs(["by-keys"]);
  await request(`/fine_tuning/jobs/${id}/pause`, { method: "POST" });
  const phase = async () => (await request(`/fine_tuning/jobs/${id}`)).phase;
  await expect.poll(phase, { timeout: 60_000 }).toBe("paused");
  const { page } = await openConsole(browser, WIDE);
  await page.goto(`${URL_OF_SERVICE}/jobs`);
  await page.getByLabel("Select by-keys").first().waitFor();
  await tabTo(page, /^Search the jobs$/);
  await page.keyboard.type("by-keys");
  await page.waitForURL(/search=by-keys/);
  await tabTo(page, /^Paused/);
  await page.keyboard.press("Enter");
  await page.waitForURL(/paused/);
  await tabTo(page, /^Select by-keys$/);
  await page.keyboard.press("Space");
  await page.getByText("1 selected").waitFor();
  await tabTo(page, /^Cancel$/, "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("alertdialog").waitFor();
  await tabTo(page, /^Cancel 1 job$/);
  await page.keyboard.press("Enter");
  await page.getByText("No job matches").waitFor();
  await page.close();
});

test("seven tabs in sight load and stay up to date, though a host has six connections", async () => {
  const context = await browser.newContext();
  await context.addInitScript((key) => sessionStorage.setItem("rekindle.key", key), KEY);
  const tabs = await Promise.all(Array.from({ length: 7 }, () => context.newPage()));
  for (const tab of tabs) {
    await tab.goto(`${URL_OF_SERVICE}/jobs?search=seen-by-all`);
    await tab.getByText("No job matches").or(tab.getByRole("table")).waitFor();
  }
  const [id] = await createJobs(["seen-by-all"]);
  await request(`/fine_tuning/jobs/${id}/cancel`, { method: "POST" });
  for (const tab of tabs) {
    const row = tab.locator(`tr:has(a[href="/jobs/${id}"])`);
    await row.getByText("Cancelled").waitFor();
  }
  await context.close();
});
