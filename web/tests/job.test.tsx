import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { evictionOf, segments } from "../src/pages/job/attempts-panel";
import { evictions } from "../src/pages/job/curves-panel";
import { decisions } from "../src/pages/job/why-panel";
import { ATTEMPT, EVENT, JOB, list } from "./job-answers";
import { renderRoute } from "./render-route";

const PATH = `*/v1/fine_tuning/jobs/${JOB.id}`;
const encoder = new TextEncoder();
let sendJob: (job: object) => void = () => undefined;

const server = setupServer(
  http.get(PATH, () => HttpResponse.json(JOB)),
  http.get(`${PATH}/stream`, () => {
    const body = new ReadableStream({
      start(controller) {
        sendJob = (job) => {
          const data = JSON.stringify({ type: "job", data: job });
          controller.enqueue(encoder.encode(`id: 2\nevent: job\ndata: ${data}\n\n`));
        };
      },
    });
    return new HttpResponse(body, { headers: { "content-type": "text/event-stream" } });
  }),
  http.get(`${PATH}/attempts`, () => HttpResponse.json(list([ATTEMPT]))),
  http.get(`${PATH}/events`, () => HttpResponse.json(list([EVENT]))),
  http.get(`${PATH}/metrics`, () => HttpResponse.json(list([]))),
  http.get(`${PATH}/logs`, () =>
    HttpResponse.json({ error: { message: "no log" } }, { status: 404 }),
  ),
);
beforeAll(() => server.listen());
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

test("a heartbeat's step is on the page without asking for it", async () => {
  renderRoute(`/jobs/${JOB.id}`);
  await screen.findByText("40 / 100");
  await waitFor(() => {
    sendJob({ ...JOB, version: 2, progress: { ...JOB.progress, step: 41, percent: 41 } });
    expect(screen.getByText("41 / 100")).toBeDefined();
  });
});

test("cancelling says first what is spent, and sends nothing until it is confirmed", async () => {
  const sent: string[] = [];
  server.use(
    http.post(`${PATH}/cancel`, ({ request }) => {
      sent.push(request.url);
      return HttpResponse.json({ ...JOB, phase: "cancelling" });
    }),
  );
  renderRoute(`/jobs/${JOB.id}`);
  await userEvent.click(await screen.findByRole("button", { name: "Cancel" }));
  const dialog = await screen.findByRole("alertdialog");
  expect(dialog.textContent).toContain("$3.00 is spent");
  expect(sent).toEqual([]);
  await userEvent.click(screen.getByRole("button", { name: "Cancel the job" }));
  await screen.findByText("Cancelling");
  expect(sent).toHaveLength(1);
});

test("a refusal stays in the dialog with its reason", async () => {
  server.use(
    http.post(`${PATH}/pause`, () =>
      HttpResponse.json({ error: { message: "It is over.", code: "job_over" } }, { status: 409 }),
    ),
  );
  renderRoute(`/jobs/${JOB.id}`);
  await userEvent.click(await screen.findByRole("button", { name: "Pause" }));
  await screen.findByRole("alertdialog");
  await userEvent.click(screen.getAllByRole("button", { name: "Pause" }).at(-1) as HTMLElement);
  expect((await screen.findByRole("alert")).textContent).toContain("It is over.");
});

test("a job that is not there says so and leads back", async () => {
  server.use(
    http.get(PATH, () =>
      HttpResponse.json({ error: { message: "There is no job ftjob-1." } }, { status: 404 }),
    ),
  );
  renderRoute(`/jobs/${JOB.id}`);
  await screen.findByText("There is no such job");
  expect(screen.getByRole("link", { name: "All jobs" })).toBeDefined();
});

test("the configuration that DeepSpeed gets can be copied as a file", async () => {
  const user = userEvent.setup();
  renderRoute(`/jobs/${JOB.id}?tab=configuration`);
  const section = await screen.findByRole("region", { name: "DeepSpeed JSON for 16 processes" });
  await user.click(within(section).getByRole("button", { name: "Copy" }));
  expect(await within(section).findByRole("button", { name: "Copied" })).toBeDefined();
  expect(JSON.parse(await navigator.clipboard.readText())).toEqual(JOB.deepspeed.config);
});

test.each([
  [1, true],
  [2, false],
])("only a plan of ZeRO stage 1 says why DeepSpeed runs stage 2: %i", async (stage, says) => {
  const plan = { ...JOB.plan, zero_stage: stage };
  server.use(http.get(PATH, () => HttpResponse.json({ ...JOB, plan })));
  renderRoute(`/jobs/${JOB.id}?tab=configuration`);
  const layout = await screen.findByText(new RegExp(`ZeRO stage ${stage}`));
  expect(layout.textContent?.includes("which sums gradients in fp32")).toBe(says);
});

test("the meter of a job that is over compares its cost with on demand and the budget", async () => {
  const cost = { ...JOB.cost, budget: "10.00", budget_remaining: "7.00", final: true };
  server.use(
    http.get(PATH, () =>
      HttpResponse.json({ ...JOB, status: "succeeded", phase: "done", cost, finished_at: 400 }),
    ),
  );
  renderRoute(`/jobs/${JOB.id}`);
  expect(await screen.findByText("on demand $12.00")).toBeDefined();
  expect(screen.getByText("budget $10.00")).toBeDefined();
  expect(screen.queryByText(/^forecast/)).toBeNull();
});

test("the end of training that was repeated is drawn as lost", () => {
  const drawn = segments({ ...ATTEMPT, steps: 100, lost_steps: 25 }, 1000);
  const lost = drawn.find(({ kind }) => kind === "lost");

  expect(lost).toMatchObject({ from: 275, to: 300 });
  expect(segments({ ...ATTEMPT, lost_steps: 0 }, 1000).some(({ kind }) => kind === "lost")).toBe(
    false,
  );
});

test("an eviction stands where the work ended, and says whether there was a notice", () => {
  expect(evictionOf(ATTEMPT)).toEqual({ at: 300, how: "evicted without notice" });
  expect(evictionOf({ ...ATTEMPT, evicted: { noticed: 1, unnoticed: 0 } })?.how).toBe("evicted");
  expect(evictionOf({ ...ATTEMPT, outcome: "succeeded" })).toBeNull();
});

test("the curves show the steps that an eviction made the job repeat", () => {
  const attempt = { ...ATTEMPT, last_step: 40, lost_steps: 15 };

  expect(evictions([attempt])).toEqual([
    { from: 25, to: 40, color: "lost", label: "evicted, 15 repeated" },
  ]);
});

test("routine events are no decisions, but every warning is one", () => {
  const warning = { ...EVENT, id: "2", code: "node.lost", level: "warn" as const };
  const routine = { ...EVENT, id: "3", code: "node.registered" };

  expect(decisions([EVENT, warning, routine]).map(({ id }) => id)).toEqual([EVENT.id, "2"]);
});
