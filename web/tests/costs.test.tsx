import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Costs, csvOf, daysOf } from "../src/pages/costs/days";
import { niceStep } from "../src/pages/costs/days-chart";
import { renderRoute } from "./render-route";

const DAY = 86_400;
const START = 20_000 * DAY; // a midnight, UTC
const bucket = (at: number, machines: number, onDemand: string) => ({
  object: "bucket" as const,
  start_time: START + at * DAY,
  end_time: START + (at + 1) * DAY,
  results: [
    {
      object: "organization.costs.result" as const,
      amount: { value: machines, currency: "usd" },
      line_item: "machines" as const,
      project_id: "proj-1",
    },
  ],
  on_demand_equivalent: onDemand,
  saved: String(Number(onDemand) - machines),
});
const COSTS = {
  object: "page",
  data: [bucket(0, 2, "8.0000"), bucket(1, 1.5, "4.5000")],
  has_more: false,
  next_page: null,
  total: "3.5000",
  on_demand_equivalent: "12.5000",
  saved: "9.0000",
  saved_percent: 72,
  currency: "USD",
} as unknown as Costs;
const SAVINGS = {
  jobs: 2,
  evictions: 3,
  spent: "3.5000",
  on_demand_equivalent: "12.5000",
  saved: "9.0000",
  saved_percent: 72,
};
const BILL = {
  told_at: START,
  told_until: "2024-10-03",
  trouble: null,
  whole: {
    metered: "3.5000",
    billed: "3.4000",
    difference: "-0.1000",
    differences: [{ cause: "rounding", amount: "-0.1000", why: "Azure bills whole minutes." }],
  },
  of_nobody: [],
  attempts: [],
  has_more: false,
};

const asked: string[] = [];
const server = setupServer(
  http.get("*/v1/organization/costs", ({ request }) => {
    asked.push(new URL(request.url).search);
    return HttpResponse.json(COSTS);
  }),
  http.get("*/v1/organization/costs/projects", () =>
    HttpResponse.json({
      data: [{ ...SAVINGS, id: "proj-1", name: "a" }],
      projects: 1,
      whole: SAVINGS,
      has_more: false,
      last_id: "proj-1",
      until: START,
    }),
  ),
  http.get("*/v1/organization/costs/reconciliation", () => HttpResponse.json(BILL)),
);
beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

test("the address keeps the range", async () => {
  const user = userEvent.setup();
  const { history } = renderRoute("/costs?days=7");
  const chosen = await screen.findByRole("link", { name: "7 days" });
  expect(chosen.getAttribute("aria-current")).toBe("page");
  expect((await screen.findAllByText("$12.50")).length).toBeGreaterThan(0);
  expect(asked).toContain("?days=7");
  await user.click(screen.getByRole("link", { name: "90 days" }));
  await screen.findByText(/spent in 90 days/);
  expect(history.location.search).toBe("?days=90");
});

test("each difference from the bill has its cause", async () => {
  renderRoute("/costs");
  const row = (await screen.findByText("Azure bills whole minutes.")).closest("tr");
  expect(row?.textContent).toContain("Rounding");
  expect(row?.textContent).toContain("−$0.10");
});

test("more projects come by a button, all of the moment of the first page", async () => {
  const starts: string[] = [];
  server.use(
    http.get("*/v1/organization/costs/projects", ({ request }) => {
      const { searchParams } = new URL(request.url);
      starts.push(`${searchParams.get("after")} ${searchParams.get("until")}`);
      const number = starts.length;
      return HttpResponse.json({
        data: [{ ...SAVINGS, id: `proj-${number}`, name: `project ${number}` }],
        projects: 3,
        whole: { ...SAVINGS, jobs: 77 },
        has_more: number < 3,
        last_id: `proj-${number}`,
        until: START,
      });
    }),
  );
  const user = userEvent.setup();
  renderRoute("/costs");
  for (const name of ["project 1", "project 2"]) {
    await screen.findByText(name);
    await user.click(screen.getByRole("button", { name: "More of the 3 projects" }));
  }
  await screen.findByText("project 3");
  expect(starts).toEqual(["null null", `proj-1 ${START}`, `proj-2 ${START}`]);
  expect(screen.getByText("All").closest("tr")?.textContent).toContain("77");
  expect(screen.queryByRole("button", { name: /More of/ })).toBeNull();
});

test("more attempts of the bill follow the last one that is shown", async () => {
  const line = { metered: "1.0000", billed: "1.0000", difference: "0.0000", differences: [] };
  server.use(
    http.get("*/v1/organization/costs/reconciliation", ({ request }) => {
      const after = new URL(request.url).searchParams.get("after");
      const ids = after === null ? ["att-1", "att-2"] : [`att-after-${after}`];
      const attempts = ids.map((id) => ({ ...line, id }));
      return HttpResponse.json({ ...BILL, attempts, has_more: after === null });
    }),
  );
  const user = userEvent.setup();
  renderRoute("/costs");
  await user.click(await screen.findByText("2 attempts with the largest differences"));
  await user.click(screen.getByRole("button", { name: "More attempts" }));
  expect(await screen.findByText("att-after-att-2")).toBeTruthy();
  expect(screen.getByText("att-1")).toBeTruthy();
  expect(screen.getByText("3 attempts")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "More attempts" })).toBeNull();
});

test("a project's own key sees its costs, and what key the other projects need", async () => {
  server.use(
    http.get("*/v1/organization/costs/projects", () =>
      HttpResponse.json({ error: { message: "Use an operator's key." } }, { status: 403 }),
    ),
  );
  renderRoute("/costs");
  expect(await screen.findByText("Use an operator's key.")).toBeTruthy();
  expect(await screen.findByText("spent in 30 days, storage included")).toBeTruthy();
});

test("a project that spent nothing reads so", async () => {
  server.use(
    http.get("*/v1/organization/costs", () =>
      HttpResponse.json({ ...COSTS, data: [bucket(0, 0, "0.0000")] }),
    ),
  );
  renderRoute("/costs");
  expect(await screen.findByText("Nothing was spent in this time")).toBeTruthy();
});

test("the CSV has a line for each day, in US dollars", () => {
  expect(csvOf(daysOf(COSTS)).split("\r\n")).toEqual([
    "day,machines_usd,storage_usd,spent_usd,on_demand_equivalent_usd,saved_usd",
    "2024-10-04,2.0000,0.0000,2.0000,8.0000,6.0000",
    "2024-10-05,1.5000,0.0000,1.5000,4.5000,3.0000",
    "",
  ]);
});

test("the axis has round steps", () => {
  expect([0.03, 4.4, 7, 10].map(niceStep)).toEqual([0.05, 5, 10, 10]);
});
