import { QueryClient } from "@tanstack/react-query";
import { act, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { replace, take } from "../src/pages/jobs/use-live-jobs";
import { JOB, list } from "./job-answers";
import { renderRoute } from "./render-route";

const JOBS = "*/v1/fine_tuning/jobs";
const asked: URL[] = [];

const server = setupServer(
  http.get(JOBS, ({ request }) => {
    asked.push(new URL(request.url));
    return HttpResponse.json(list([JOB]));
  }),
  http.get(`${JOBS}/stream`, () => HttpResponse.json({ error: {} }, { status: 503 })),
  http.get("*/v1/fine_tuning/summary", () =>
    HttpResponse.json({
      jobs: 1,
      phases: { training: 1 },
      per_hour: "8.44",
      on_demand_per_hour: "32.77",
      month: { spent: "3", saved: "9" },
      today: { evictions: 1, lost_steps: 4 },
    }),
  ),
  http.get("*/v1/models", () =>
    HttpResponse.json({ object: "list", data: [{ id: "base-135m", owned_by: "base" }] }),
  ),
);
beforeAll(() => server.listen());
afterEach(() => {
  server.resetHandlers();
  asked.length = 0;
});
afterAll(() => server.close());

test("a phase that is chosen is asked for, and stays in the address", async () => {
  const { history } = renderRoute("/jobs");
  await userEvent.click(await screen.findByRole("button", { name: /^Recovering/ }));
  await waitFor(() => expect(asked.at(-1)?.searchParams.getAll("phase")).toEqual(["recovering"]));

  expect(history.location.search).toContain("recovering");
});

test("the second click on a column turns its order around", async () => {
  renderRoute("/jobs?sort=cost&order=desc");
  await userEvent.click(await screen.findByRole("button", { name: /^Spent/ }));
  await waitFor(() => expect(asked.at(-1)?.searchParams.get("order")).toBe("asc"));

  expect(asked.at(-1)?.searchParams.get("sort")).toBe("cost");
});

test("a project without jobs starts one sample job by a double click, within a budget", async () => {
  const created: Record<string, unknown>[] = [];
  server.use(
    http.get(JOBS, () => HttpResponse.json(list([]))),
    http.post("*/v1/files", () => HttpResponse.json({ id: "file-9" })),
    http.post(JOBS, async ({ request }) => {
      created.push((await request.json()) as Record<string, unknown>);
      return HttpResponse.json(JOB);
    }),
  );
  const { history } = renderRoute("/jobs");
  const button = await screen.findByRole<HTMLButtonElement>("button", { name: /sample job/ });
  await waitFor(() => expect(button.disabled).toBe(false));
  act(() => {
    button.click(); // twice before the page is drawn again, as a double click on a slow computer
    button.click();
  });
  await waitFor(() => expect(history.location.pathname).toBe(`/jobs/${JOB.id}`));

  expect(created).toMatchObject([
    { training_file: "file-9", model: "base-135m", infrastructure: { budget: { amount: "5" } } },
  ]);
});

test("a late event does not put an older version back", () => {
  const newest = { ...JOB, version: 5 } as never;
  const pages = { pages: [list([newest])], pageParams: [undefined] } as never;

  expect(replace(pages, { ...JOB, version: 4 } as never).pages[0]?.data[0]).toBe(newest);
  expect(replace(pages, { ...JOB, version: 6 } as never).pages[0]?.data[0]?.version).toBe(6);
});

test("a job that changes its phase makes the lists of one phase be read again, and no other", () => {
  const client = new QueryClient();
  const [of, all] = [
    ["jobs", { phase: ["paused"] }],
    ["jobs", {}],
  ];
  const pages = { pages: [list([{ ...JOB, phase: "paused", version: 1 }])], pageParams: [] };
  for (const key of [of, all]) client.setQueryData(key, pages);

  take(client, { ...JOB, phase: "done", version: 2 } as never);

  expect(client.getQueryState(of)?.isInvalidated).toBe(true);
  expect(client.getQueryState(all)?.isInvalidated).toBe(false);
});

test("an interrupted stream does not keep the list from being shown", async () => {
  renderRoute("/jobs");
  expect(await screen.findByRole("button", { name: /^Training 1/ })).toBeDefined();
});
