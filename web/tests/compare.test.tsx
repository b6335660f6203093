import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import {
  curves,
  FIGURES,
  type Figure,
  positions,
  type Run,
  smoothed,
} from "../src/pages/compare/series";
import { JOB } from "./answers";
import { fakeCanvas } from "./canvas";
import { renderRoute } from "./render-route";

const OTHER = {
  ...JOB,
  id: "ftjob-bbbbbb",
  user_provided_suffix: "tone-v2",
  finished_at: 4_000,
  seed: 8,
  progress: { ...JOB.progress, loss: 0.6, lost_steps: 0 },
  cost: { spent: "3.50", saved: "9.10" },
  plan: { ...JOB.plan, recipe: { ...JOB.plan.recipe, n_epochs: 50 } },
};
const JOBS = [JOB, OTHER];
const COMPARED = `/compare?jobs=${encodeURIComponent(JSON.stringify(JOBS.map((job) => job.id)))}`;

function row(step: number, loss: number) {
  return {
    step,
    generation: 1,
    loss,
    learning_rate: 1e-4,
    grad_norm: null,
    accuracy: null,
    tokens: 100,
    seconds: 2,
    valid_loss: null,
    margin: null,
    reward: null,
    kl: null,
    answer_tokens: null,
    grader_errors: null,
    loss_scale: null,
    mfu: null,
    peak_memory: null,
    slowest_rank: null,
    slowest_ratio: null,
    spike: null,
    skipped: null,
  };
}

const server = setupServer(
  http.get("*/v1/fine_tuning/jobs", () =>
    HttpResponse.json({
      object: "list",
      data: JOBS,
      first_id: null,
      last_id: null,
      has_more: false,
    }),
  ),
  http.get("*/v1/fine_tuning/jobs/:id", ({ params }) => {
    const job = JOBS.find((one) => one.id === params.id);
    return job === undefined
      ? HttpResponse.json({ error: { message: "There is no such job." } }, { status: 404 })
      : HttpResponse.json(job);
  }),
  http.get("*/v1/fine_tuning/jobs/:id/metrics", () =>
    HttpResponse.json({ object: "list", data: [row(1, 3), row(2, 2)], has_more: false }),
  ),
);

beforeAll(() => {
  fakeCanvas();
  server.listen({ onUnhandledRequest: "error" });
});
beforeEach(() => sessionStorage.setItem("rekindle.key", "rk-test"));
afterAll(() => server.close());

const LOSS = FIGURES.find((figure) => figure.name === "loss") as Figure;

function run(id: string, rows: ReturnType<typeof row>[]): Run {
  return { id, name: id, color: "series-1", dash: false, rows };
}

test("the configuration shows only what differs until all is asked for", async () => {
  renderRoute(COMPARED);
  const table = within(await screen.findByRole("region", { name: "Configuration" }));
  expect(table.getByRole("row", { name: "training.n_epochs 25 50" })).toBeTruthy();
  expect(table.getByRole("row", { name: "seed 7 8" })).toBeTruthy();
  expect(table.queryByText("model")).toBeNull();
  await userEvent.click(screen.getByLabelText("Show equal values too"));
  const whole = within(screen.getByRole("region", { name: "Configuration" }));
  expect(whole.getByText("model")).toBeTruthy();
});

test("the best of each result is marked with a word", async () => {
  renderRoute(COMPARED);
  const table = within(await screen.findByRole("region", { name: "Results" }));
  expect(table.getByRole("row", { name: "Training loss, last step 0.8 0.6 best" })).toBeTruthy();
  expect(table.getByRole("row", { name: "Cost $2.00 best $3.50" })).toBeTruthy();
  expect(table.getByRole("row", { name: "Evictions 1 1" })).toBeTruthy();
});

test("choosing jobs keeps them in the address", async () => {
  const { history } = renderRoute("/compare");
  await userEvent.type(await screen.findByLabelText("Search the jobs"), "v2");
  await waitFor(() => expect(screen.getAllByRole("checkbox")).toHaveLength(1));
  await userEvent.click(screen.getByRole("checkbox"));
  await waitFor(() => expect(decodeURIComponent(history.location.search)).toContain(OTHER.id));
});

test("a job that is gone can be left out, and the others are shown", async () => {
  const ids = JSON.stringify([JOB.id, "ftjob-gone"]);
  const { history } = renderRoute(`/compare?jobs=${encodeURIComponent(ids)}`);
  await screen.findByText("Job ftjob-gone: There is no such job.");
  await screen.findByRole("region", { name: "Results" });
  await userEvent.click(screen.getByRole("button", { name: "Leave this job out" }));
  await waitFor(() => expect(history.location.search).not.toContain("gone"));
});

test("a job that is switched off in the legend leaves the charts", async () => {
  renderRoute(COMPARED);
  await screen.findByRole("figure", { name: /^Training loss by step: tone-v1 .*tone-v2/ });
  await userEvent.click(screen.getByRole("button", { name: "tone-v2" }));
  await screen.findByRole("figure", { name: /^Training loss by step: tone-v1 [^,]*$/ });
});

test("curves of runs with other steps stand on one axis", () => {
  const { x, lines } = curves(
    [run("a", [row(1, 3), row(3, 1)]), run("b", [row(2, 5)])],
    LOSS,
    "step",
    0,
  );
  expect(x).toEqual([1, 2, 3]);
  expect(lines.map((line) => line.values)).toEqual([
    [3, null, 1],
    [null, 5, null],
  ]);
});

test("a row of a thinned series counts the steps that it stands for", () => {
  expect(positions([row(10, 1), row(20, 1)], "tokens")).toEqual([100, 1100]);
  expect(positions([row(10, 1), row(20, 1)], "time")).toEqual([2, 22]);
});

test("smoothing begins at the first value and keeps gaps", () => {
  expect(smoothed([4, null, 4], 0.9)).toEqual([4, null, 4]);
  const [first, second] = smoothed([4, 2], 0.5);
  expect(first).toBe(4);
  expect(second).toBeCloseTo(8 / 3);
});

test("the raw curve stays behind the smoothed one", () => {
  const { lines } = curves([run("a", [row(1, 3), row(2, 1)])], LOSS, "step", 0.5);
  expect(lines.map((line) => [line.label, line.faint ?? false])).toEqual([
    ["a, raw", true],
    ["a", false],
  ]);
});
