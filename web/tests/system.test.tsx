import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { renderRoute } from "./render-route";

const NOW = 1_795_000_000;
const SYSTEM = {
  replicas: [
    {
      name: "replica-a",
      command: "all",
      version: "1.2.3",
      connected_at: NOW,
      leads: ["admission"],
    },
    { name: "replica-b", command: "api", version: null, connected_at: NOW, leads: [] },
  ],
  this_replica: {
    name: "replica-b",
    version: "1.2.3",
    runs_loops: true,
    late_loops: [],
    hears_notices: true,
  },
  work: [{ name: "jobs", due: 0, lag_seconds: 0, leased: 1 }],
  turns: [{ what: "admission", holder: "replica-a", ends_at: NOW, is_held: true }],
  readings: [
    {
      what: "bills",
      read_at: NOW,
      due_at: NOW,
      lag_seconds: 0,
      trouble: null,
      trouble_at: null,
    },
  ],
  rate_budgets: [{ region: "eastus", request: "HighCostGetVMScaleSet", left: 1070.5, at: NOW }],
  circuits: [],
  help_wanted: [],
  schema_revision: "0037",
  postgres_version: "18.4",
  as_of: NOW,
};
const NONE = { scale_sets: 0, machines: 0, per_hour: "0.0000" };
const AUDIT = {
  data: [],
  has_more: false,
  summary: {
    currency: "USD",
    groups: { used: { ...NONE, scale_sets: 2 }, untracked: { ...NONE, resources: 0 } },
    leaks: 0,
    unpriced_leaks: 0,
    unseen: null,
    unknown_containers: 0,
  },
};
const LEAK = {
  id: "rk-att-9",
  object: "scale_set",
  type: "Microsoft.Compute/virtualMachineScaleSets",
  standing: "lingering",
  leaks: true,
  region: "eastus",
  vm_size: "Standard_ND96amsr_A100_v4",
  attempt: "att-9",
  job: "ftjob-9",
  machines: 1,
  since: NOW,
  per_hour: "8.4400",
};

const server = setupServer(
  http.get("*/v1/organization/system", () => HttpResponse.json(SYSTEM)),
  http.get("*/v1/organization/audit", () => HttpResponse.json(AUDIT)),
);
const answerSystem = (changed: object) =>
  server.use(
    http.get("*/v1/organization/system", () => HttpResponse.json({ ...SYSTEM, ...changed })),
  );
beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

test("a healthy service says that nothing needs a person, and that nothing leaks", async () => {
  renderRoute("/system");
  expect(await screen.findByText("Nothing needs a person now.")).toBeTruthy();
  expect(await screen.findByText("Nothing leaks.")).toBeTruthy();
  expect(screen.getAllByText("replica-a")).toHaveLength(2);
  expect(screen.getByText("1,070")).toBeTruthy();
});

test("every replica shows what it runs and which loops it leads", async () => {
  renderRoute("/system");
  const leader = (await screen.findAllByText("replica-a"))[0]?.closest("tr");
  expect(leader?.textContent).toContain("API and reconciler");
  expect(leader?.textContent).toContain("Admission");
  expect(screen.getByText("replica-b").closest("tr")?.textContent).toContain("answered this page");
});

test("what a person must look at stands first, with its job", async () => {
  answerSystem({
    work: [{ name: "attempts", due: 4, lag_seconds: 180, leased: 0 }],
    circuits: [{ region: "eastus", failures: 6, closed_until: NOW }],
    help_wanted: [
      {
        job: "ftjob-1",
        job_name: "tone",
        project: "proj-1",
        attempt: null,
        since: NOW,
        message: "Azure does not delete the scale set.",
      },
    ],
  });
  renderRoute("/system");
  const alerts = (await screen.findByText(/Azure does not delete/)).closest("ul");
  expect(alerts?.children).toHaveLength(3);
  expect(alerts?.textContent).toContain("the oldest for 3 min");
  expect(alerts?.textContent).toContain("failed 6 times in a row");
  expect(screen.getByRole("link", { name: "tone" }).getAttribute("href")).toBe("/jobs/ftjob-1");
});

test("a leak names its resource, why it leaks, its job and its price", async () => {
  server.use(
    http.get("*/v1/organization/audit", () =>
      HttpResponse.json({ ...AUDIT, data: [LEAK], summary: { ...AUDIT.summary, leaks: 1 } }),
    ),
  );
  renderRoute("/system");
  const row = (await screen.findByText("rk-att-9")).closest("tr");
  expect(row?.textContent).toContain("should be deleted, and still exist");
  expect(row?.textContent).toContain("ftjob-9");
  expect(row?.textContent).toContain("$8.44");
});

test("leaks that are not on the first page are looked for until all are listed", async () => {
  const summary = { ...AUDIT.summary, leaks: 1 };
  server.use(
    http.get("*/v1/organization/audit", ({ request }) => {
      const after = new URL(request.url).searchParams.get("after");
      const data = after === null ? [{ ...LEAK, id: "rk-att-1", leaks: false }] : [LEAK];
      return HttpResponse.json({ data, summary, has_more: true, last_id: data[0]?.id });
    }),
  );
  const user = userEvent.setup();
  renderRoute("/system");
  expect((await screen.findByText(/1 resource leaks/)).textContent).toContain("0 of them");
  await user.click(screen.getByRole("button", { name: "Look at 1,000 more resources" }));
  expect(await screen.findByText("rk-att-9")).toBeTruthy();
  expect(screen.queryByText(/of them/)).toBeNull();
  expect(screen.queryByRole("button", { name: /more resources/ })).toBeNull();
});

test("who is no operator reads what key is needed", async () => {
  server.use(
    http.get("*/v1/organization/system", () =>
      HttpResponse.json({ error: { message: "Use a key of operators." } }, { status: 403 }),
    ),
  );
  renderRoute("/system");
  expect(await screen.findByText("This needs an operator's key")).toBeTruthy();
  expect(screen.getByText("Use a key of operators.")).toBeTruthy();
});

test("the page stays useful while Azure does not answer the audit", async () => {
  server.use(
    http.get("*/v1/organization/audit", () =>
      HttpResponse.json({ error: { message: "Ask another replica." } }, { status: 409 }),
    ),
  );
  renderRoute("/system");
  expect(await screen.findByText("Ask another replica.")).toBeTruthy();
  expect(screen.getByText("replica-b")).toBeTruthy();
});
