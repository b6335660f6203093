/** The Chrome or Chromium that is installed: `CHROME`, or the first of browsers.json. */

import { existsSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

const names = JSON.parse(readFileSync(new URL("browsers.json", import.meta.url), "utf-8"));

export function launchChrome() {
  const folders = ["", ...(process.env.PATH ?? "").split(delimiter)];
  const executablePath = [process.env.CHROME, ...names]
    .filter(Boolean)
    .flatMap((name) => folders.map((folder) => join(folder, name)))
    .find((path) => path.includes("/") && existsSync(path));
  if (executablePath === undefined) {
    throw new Error("No Chrome or Chromium: apt install chromium, or set CHROME to its path.");
  }
  // Inside a container root cannot use Chromium's own sandbox; the pages are our own.
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}
