import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { accessibilityFaults, launch, openConsole, shoot, type View } from "./open";

const JOB = process.env.CONSOLE_JOB ?? "";
// The whole matrix is for people who look at the screenshots; two views find nearly as much.
const VIEWS: View[] = process.env.CONSOLE_ALL_VIEWS
  ? [
      { width: 1440, theme: "light" },
      { width: 1440, theme: "dark" },
      { width: 390, theme: "light" },
      { width: 390, theme: "dark" },
    ]
  : [
      { width: 1440, theme: "light" },
      { width: 390, theme: "dark" },
    ];

const PAGES: [name: string, path: string, heading: string | RegExp][] = [
  ["jobs", "/jobs", "Jobs"],
  ["job-logs", `/jobs/${JOB}`, /./],
  ["job-events", `/jobs/${JOB}?tab=events`, /./],
  ["job-checkpoints", `/jobs/${JOB}?tab=checkpoints`, /./],
  ["job-configuration", `/jobs/${JOB}?tab=configuration`, /./],
  ["job-data", `/jobs/${JOB}?tab=data`, /./],
  ["job-machines", `/jobs/${JOB}?tab=machines`, /./],
  ["new", "/new", "New job"],
  ["compare", `/compare?jobs=${encodeURIComponent(JSON.stringify([JOB]))}`, "Compare"],
  ["models", "/models", "Models"],
  ["fleet", "/fleet", "Fleet"],
  ["costs", "/costs", "Costs"],
  ["settings", "/settings", "Settings"],
  ["system", "/system", "System"],
];

let browser: Browser;
beforeAll(async () => {
  browser = await launch();
});
afterAll(async () => browser.close());

const SOME = PAGES.filter(([name]) => !/^job-(?!logs)/.test(name)); // tabs differ little by width

describe.each(VIEWS)("at $width pixels, $theme", (view) => {
  const pages = view.width === 1440 || process.env.CONSOLE_ALL_VIEWS ? PAGES : SOME;
  test.each(pages)("%s shows itself without a fault", async (name, path, heading) => {
    const { page, faults } = await openConsole(browser, view);
    await page.goto(process.env.CONSOLE_URL + path);
    await page.getByRole("heading", { level: 1, name: heading }).waitFor();
    await page.waitForFunction(() => document.querySelector("[aria-label^=Loading]") === null);
    await shoot(page, `${name}-${view.width}-${view.theme}`);

    expect(await accessibilityFaults(page)).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(
      view.width,
    );
    expect(faults).toEqual([]);
    await page.close();
  });
});
