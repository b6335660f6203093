import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { countsOf, priceLine } from "../src/pages/fleet/history";
import { renderRoute } from "./render-route";

const NOW = 1_795_000_000;
const SIZE = "Standard_ND96amsr_A100_v4";
const offering = (region: string, changed: object = {}) => ({
  region,
  vm_size: SIZE,
  capacity_type: "spot",
  engine: "scale_set",
  gpus: 8,
  gpu: "A100",
  per_hour: "8.4400",
  on_demand_per_hour: "32.7700",
  cores: { limit: 960, used: 96, used_by_others: 192 },
  shortage: null,
  last_given_at: NOW,
  eviction_rate: "5-10",
  placement_score: "High",
  machines: 1,
  ...changed,
});
const NODE = {
  id: "node-1",
  vm_id: "vm-1",
  name: "node-zero",
  phase: "training",
  generation: 1,
  step: 120,
  is_evicting: true,
  unhealthy_since: null,
  error: null,
  registered_at: NOW,
  heard_at: NOW,
};
const ATTEMPT = {
  id: "att-1",
  name: "rk-att-1",
  job: "ftjob-1",
  job_name: "tone",
  project: "proj-1",
  number: 2,
  region: "eastus",
  vm_size: SIZE,
  capacity_type: "spot",
  engine: "scale_set",
  state: "running",
  since: NOW,
  machines: 2,
  running: 1,
  joined: 1,
  seen_at: NOW,
  per_hour: "8.4400",
  on_demand_per_hour: "32.7700",
  boot: null,
  boot_at: null,
  nodes: [NODE],
};
const WAITING = {
  job: "ftjob-2",
  job_name: "later",
  project: "proj-1",
  position: 1,
  priority: "normal",
  gpus: 8,
  code: "pending_cores",
  reason: "96 Spot cores are missing in eastus.",
  since: NOW,
};
const SHORTAGE = {
  since: NOW,
  retry_at: NOW + 300,
  refusals: 3,
  machines: 1,
  reason: "SkuNotAvailable.",
};
const FLEET = {
  all_projects: true,
  offerings: [
    offering("eastus"),
    offering("westeurope", { shortage: SHORTAGE, last_given_at: null }),
  ],
  attempts: [ATTEMPT],
  queue: [WAITING],
  has_more: false,
  per_hour: "8.4400",
  on_demand_per_hour: "32.7700",
  currency: "USD",
  as_of: NOW,
};

let asked: string[] = [];
const server = setupServer(
  http.get("*/v1/organization/fleet", () => HttpResponse.json(FLEET)),
  http.get("*/v1/organization/prices", () =>
    HttpResponse.json({ data: [], since: NOW - 100, until: NOW, currency: "USD" }),
  ),
  http.get("*/v1/organization/traces", ({ request }) => {
    const after = new URL(request.url).searchParams.get("after");
    asked.push(after ?? "first");
    const id = after === null ? `${SIZE}@eastus` : `${SIZE}@westeurope`;
    const data = [{ id, seen_percent: 0, trace: null }];
    return HttpResponse.json({ data, has_more: after === null, last_id: id, until: NOW });
  }),
);
beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
beforeEach(() => {
  asked = [];
});
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

const table = (name: string) => screen.findByRole("table", { name });

test("machines are listed by job, and their nodes on demand", async () => {
  const user = userEvent.setup();
  renderRoute("/fleet");
  const machines = await table("Scale sets and clusters, oldest first");
  expect(machines.textContent).toContain("1 of 2 run");
  expect(screen.queryByText("node-zero")).toBeNull();
  await user.click(within(machines).getByRole("button", { name: /Nodes of tone/ }));
  expect(screen.getByText("node-zero")).toBeTruthy();
  expect(screen.getByText("Azure takes it back")).toBeTruthy();
});

test("a place says whether Azure gave machines, and what is left of the quota", async () => {
  renderRoute("/fleet");
  const offered = await table("Offered machines");
  const [, east, west] = within(offered).getAllByRole("row");
  expect(east?.textContent).toContain("Given");
  expect(east?.textContent).toContain("288 of 960");
  expect(east?.textContent).toContain("192 by others");
  expect(west?.textContent).toContain("Refused 3 times");
  expect(west?.textContent).toContain("SkuNotAvailable.");
});

test("the address keeps the region", async () => {
  renderRoute("/fleet?region=westeurope");
  const offered = await table("Offered machines");
  expect(within(offered).getAllByRole("row")).toHaveLength(2);
  expect(within(offered).getByText("westeurope")).toBeTruthy();
});

test("a job that waits says why, and where it stands", async () => {
  renderRoute("/fleet");
  const row = (await screen.findByText("96 Spot cores are missing in eastus.")).closest("tr");
  expect(row?.textContent).toContain("1later");
});

test("the history of a place is looked for on every page", async () => {
  renderRoute(`/fleet?place=${SIZE}@westeurope`);
  expect(await screen.findByText("No capacity is known in this time")).toBeTruthy();
  expect(asked).toEqual(["first", `${SIZE}@eastus`]);
});

test("who is no operator reads what key the capacity needs, and sees the rest", async () => {
  server.use(
    http.get("*/v1/organization/traces", () =>
      HttpResponse.json({ error: { message: "Use an operator's key." } }, { status: 403 }),
    ),
  );
  renderRoute("/fleet");
  expect(await screen.findByText("Use an operator's key.")).toBeTruthy();
  expect(await table("Offered machines")).toBeTruthy();
});

test("counts are gaps where no job asked for machines, and begin with the first known one", () => {
  const metadata = {
    gap_seconds: 300,
    start_time: new Date(NOW * 1000).toISOString(),
    seen: [
      [1, 3],
      [4, 5],
    ],
  };
  expect(countsOf({ metadata, data: [2, 2, 0, 2, 1, 2] })).toEqual({
    x: [NOW + 300, NOW + 600, NOW + 900, NOW + 1200],
    values: [2, 0, null, 1],
    knownSeconds: 900,
  });
  expect(countsOf({ metadata: { ...metadata, seen: [] }, data: [2] })).toBeNull();
  expect(countsOf(null)).toBeNull();
});

test("a price holds from the first day that is shown until now", () => {
  const line = priceLine([{ at: 5, per_hour: "2" }], 10, 20);
  expect(line).toEqual({ x: [10, 20], values: [2, 2] });
});
