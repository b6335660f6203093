// node measure.mjs URL KEY MODE [JOB SECONDS]: what a page takes in Chromium; one JSON object.
import { launchChrome } from "./chrome.mjs";

const [url, key, mode, job, seconds] = process.argv.slice(2);
const LOADS = 5;
const browser = await launchChrome();

async function open(path) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  await page.addInitScript((k) => sessionStorage.setItem("rekindle.key", k), key);
  await page.goto(url + path);
  return page;
}

/** First contentful paint in ms and the scripts' bytes on the wire, with nothing cached. */
async function load(path) {
  const page = await open(path);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.waitForFunction(() => performance.getEntriesByType("paint").length === 2);
  const found = await page.evaluate(() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null,
    script: performance
      .getEntriesByType("resource")
      .filter(({ name }) => name.endsWith(".js"))
      .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0),
  }));
  await page.context().close();
  return found;
}

/** Milliseconds from a click to the frame after the page has changed. */
async function respond(page, selector, wait) {
  return page.evaluate(
    ([target, change]) =>
      new Promise((resolve) => {
        const element = document.querySelector(target);
        const begin = performance.now();
        const seen = new MutationObserver(() => {
          if (document.querySelector(change) === null) return;
          seen.disconnect();
          requestAnimationFrame(() => resolve(performance.now() - begin));
        });
        seen.observe(document.body, { subtree: true, childList: true, attributes: true });
        element.click();
      }),
    [selector, wait],
  );
}

async function list() {
  const page = await open("/jobs");
  await page.locator("tbody tr").nth(5).waitFor();
  const select = [];
  for (let row = 2; row < 7; row += 1) {
    select.push(
      await respond(
        page,
        `tr[aria-rowindex="${row}"] input`,
        `tr[aria-rowindex="${row}"] :checked`,
      ),
    );
  }
  // Down to the last of the jobs, page by page as they are read; then how long frames take.
  const last = await page.evaluate(async () => {
    const rest = () => new Promise((resolve) => requestAnimationFrame(resolve));
    for (let at = 0; at < 3_000; at += 1) {
      scrollTo(0, document.body.scrollHeight);
      await rest();
      if (/^[\d,]+ jobs$/.test(document.querySelector("p[role=status]")?.textContent ?? "")) break;
    }
    return document.querySelector("p[role=status]")?.textContent;
  });
  const frames = await page.evaluate(async () => {
    const took = [];
    const height = document.body.scrollHeight;
    let before = await new Promise((resolve) => requestAnimationFrame(resolve));
    for (let at = 0; at < 300; at += 1) {
      scrollTo(0, (height * at) / 300);
      const now = await new Promise((resolve) => requestAnimationFrame(resolve));
      took.push(now - before);
      before = now;
    }
    return took;
  });
  return { select, frames, last };
}

async function watch() {
  const page = await open(`/jobs/${job}`);
  await page.getByRole("progressbar").waitFor();
  return page.evaluate(
    (ms) =>
      new Promise((resolve) => {
        const seen = [];
        const bar = document.querySelector("[role=progressbar]");
        const watching = new MutationObserver(() => {
          const step = bar.getAttribute("aria-valuenow");
          requestAnimationFrame(() => seen.push([Date.now() / 1000, Number(step)]));
        });
        watching.observe(bar, { attributes: true, attributeFilter: ["aria-valuenow"] });
        setTimeout(() => resolve(seen), ms);
      }),
    Number(seconds) * 1000,
  );
}

async function draw() {
  const begin = Date.now();
  const page = await open(`/jobs/${job}`);
  await page.locator("canvas").first().waitFor();
  const drawn = Date.now() - begin;
  return { drawn };
}

const modes = {
  load: async () => {
    const loads = [];
    for (let at = 0; at < LOADS; at += 1) loads.push(await load("/jobs"));
    return { jobs: loads, job: await load(`/jobs/${job}`) };
  },
  list,
  watch,
  draw,
};
console.log(JSON.stringify(await modes[mode]()));
await browser.close();
