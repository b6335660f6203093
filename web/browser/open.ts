/** Chromium with the console open, and everything that it must not do written down. */

import { createRequire } from "node:module";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";

export { launchChrome as launch } from "./chrome.mjs";

export const URL_OF_SERVICE = required("CONSOLE_URL");
export const KEY = required("CONSOLE_KEY");
const SHOTS = process.env.CONSOLE_SHOTS; // folder for screenshots; none without it

const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

export interface View {
  width: 390 | 1440;
  theme: "light" | "dark";
}

export interface Console {
  page: Page;
  faults: string[]; // errors in the console, and requests to other hosts
}

/** A tab that is signed in with this key; with none, signed out. */
export async function openConsole(
  browser: Browser,
  view: View,
  signedInWith: string | null = KEY,
): Promise<Console> {
  const page = await browser.newPage({
    viewport: { width: view.width, height: 900 },
    colorScheme: view.theme,
    reducedMotion: "reduce",
  });
  const faults: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(URL_OF_SERVICE) && !request.url().startsWith("blob:")) {
      faults.push(`request to another host: ${request.url()}`);
    }
  });
  if (signedInWith !== null) {
    await page.addInitScript((key) => sessionStorage.setItem("rekindle.key", key), signedInWith);
  }
  return { page, faults };
}

/** What axe finds against WCAG 2.2 AA, a line each. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  // evaluate() works under a strict Content-Security-Policy, a script element does not.
  const { readFileSync } = await import("node:fs");
  await page.evaluate(readFileSync(AXE, "utf-8"));
  return page.evaluate(async () => {
    const axe = (window as unknown as { axe: typeof import("axe-core") }).axe;
    const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
    const { violations } = await axe.run(document, { runOnly: tags });
    return violations.flatMap(({ id, help, nodes }) =>
      nodes.map(({ target }) => `${id}: ${help} (${String(target)})`),
    );
  });
}

export async function shoot(page: Page, name: string): Promise<void> {
  if (SHOTS !== undefined) {
    await page.screenshot({ path: join(SHOTS, `${name}.png`), fullPage: true });
  }
}

function required(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`Set ${name}: the browser needs a running service.`);
  return value;
}
