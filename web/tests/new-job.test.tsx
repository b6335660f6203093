import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent, { type UserEvent } from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { FILE, JOB, PREVIEW, plan } from "./answers";
import { renderRoute } from "./render-route";

const created: { key: string | null; body: Record<string, unknown> }[] = [];
const planned: Record<string, unknown>[] = [];

const server = setupServer(
  http.get("*/v1/models", () =>
    HttpResponse.json({
      object: "list",
      data: [{ id: "rekindle/tiny-llama", object: "model", created: 1, owned_by: "base" }],
    }),
  ),
  http.get("*/v1/files", () =>
    HttpResponse.json({
      object: "list",
      data: [FILE],
      first_id: null,
      last_id: null,
      has_more: false,
    }),
  ),
  http.get("*/v1/files/:id", () => HttpResponse.json(FILE)),
  http.get("*/v1/files/:id/preview", () => HttpResponse.json(PREVIEW)),
  http.get("*/v1/fine_tuning/jobs/:id", () => HttpResponse.json(JOB)),
  http.post("*/v1/fine_tuning/plans", async ({ request }) => {
    planned.push((await request.json()) as Record<string, unknown>);
    return HttpResponse.json(plan());
  }),
  http.post("*/v1/fine_tuning/jobs", async ({ request }) => {
    const body = (await request.json()) as Record<string, unknown>;
    created.push({ key: request.headers.get("idempotency-key"), body });
    return HttpResponse.json({ ...JOB, id: "ftjob-new" });
  }),
);

beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
beforeEach(() => {
  sessionStorage.clear();
  sessionStorage.setItem("rekindle.key", "rk-test");
  created.length = 0;
  planned.length = 0;
});
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

function refuse(path: string, error: Record<string, unknown>) {
  server.use(
    http.post(`*${path}`, () =>
      HttpResponse.json({ error: { type: "invalid_request_error", ...error } }, { status: 400 }),
    ),
  );
}

async function fillForm() {
  const user = userEvent.setup({ delay: null });
  await choose(user, "Training file", FILE.id);
  await choose(user, "Base model", "rekindle/tiny-llama");
  return user;
}

/** Choose an option of a list once it is there. */
async function choose(user: UserEvent, label: string, value: string) {
  const list = await screen.findByLabelText<HTMLSelectElement>(label);
  await waitFor(() => expect([...list.options].map((one) => one.value)).toContain(value));
  await user.selectOptions(list, value);
}

test("a refused file shows the lines to correct", async () => {
  refuse("/v1/files", {
    message: "2 of 3 lines are wrong.",
    param: "file",
    code: "invalid_file_format",
    errors: [
      { line: 2, code: "invalid_json", message: "Expecting value at column 1" },
      { line: 1204, code: "unrecognized_role", message: "role 'usr' is not known" },
    ],
    counts: { invalid_json: 1, unrecognized_role: 1 },
  });
  renderRoute("/new");
  const input = await screen.findByLabelText("Upload: training file");
  await userEvent.upload(input, new File(["{}\n"], "bad.jsonl"));
  const table = within(await screen.findByRole("region", { name: "Wrong lines of bad.jsonl" }));
  expect(table.getByRole("row", { name: /^2 Expecting value/ })).toBeTruthy();
  expect(table.getByRole("row", { name: /^1,204 role 'usr'/ })).toBeTruthy();
});

test("a row is shown as turns of a chat, with what is trained marked", async () => {
  renderRoute("/new");
  await fillForm();
  const row = within(await screen.findByRole("article", { name: "Line 1" }));
  expect(row.getByText("User")).toBeTruthy();
  expect(row.getByText("We open at eight.").tagName).toBe("MARK");
  expect(row.getByText("When do you open?").tagName).toBe("SPAN");
});

test("a double click creates one job, with the plan that was shown", async () => {
  const { history } = renderRoute("/new");
  const user = await fillForm();
  await screen.findByText("Up to date");
  await user.dblClick(screen.getByRole("button", { name: "Create job" }));
  await waitFor(() => expect(history.location.pathname).toBe("/jobs/ftjob-new"));
  expect(created).toHaveLength(1);
  expect(created[0]?.body).toMatchObject({
    plan: "plan-1",
    training_file: FILE.id,
    training: { adapter: { type: "lora" } },
  });
  expect(created[0]?.key).toMatch(/^[0-9a-f]{32}$/);
});

test("a retry after a lost answer sends the same key and the same body", async () => {
  server.use(
    http.post(
      "*/v1/fine_tuning/jobs",
      async ({ request }) => {
        const body = (await request.json()) as Record<string, unknown>;
        created.push({ key: request.headers.get("idempotency-key"), body });
        return HttpResponse.json({ error: { message: "Restarting." } }, { status: 503 });
      },
      { once: true },
    ),
  );
  const { history } = renderRoute("/new");
  const user = await fillForm();
  await user.click(screen.getByRole("button", { name: "Create job" }));
  await screen.findByText("Restarting.");
  await screen.findByText("Up to date");
  await user.click(screen.getByRole("button", { name: "Create job" }));
  await waitFor(() => expect(history.location.pathname).toBe("/jobs/ftjob-new"));
  expect(created[1]).toEqual(created[0]);
});

test("an error of the API stands at the field that it is about", async () => {
  refuse("/v1/fine_tuning/plans", {
    message: "n_epochs: Input should be at most 50.",
    param: "method.supervised.hyperparameters.n_epochs",
    code: "invalid_value",
  });
  renderRoute("/new");
  const user = await fillForm();
  const epochs = screen.getByLabelText("Epochs");
  await user.type(epochs, "99");
  await waitFor(() => expect(epochs.getAttribute("aria-invalid")).toBe("true"));
  const below = document.getElementById(epochs.getAttribute("aria-describedby") ?? "");
  expect(below?.textContent).toBe("n_epochs: Input should be at most 50.");
});

test("an error about an option of the JSON stands at the JSON", async () => {
  refuse("/v1/fine_tuning/plans", {
    message: "training.zero_stag: unknown member.",
    param: "training.zero_stag",
    code: "unknown_parameter",
  });
  renderRoute("/new");
  const user = await fillForm();
  const json = screen.getByLabelText("More members of the request");
  await user.click(json);
  await user.paste('{"training": {"zero_stag": 1}}');
  await waitFor(() => expect(json.getAttribute("aria-invalid")).toBe("true"));
});

test("the slider of the budget greys out the options that cost more", async () => {
  renderRoute("/new");
  await fillForm();
  const table = within(await screen.findByRole("table", { name: "Options of the plan" }));
  expect(table.queryByText("Over the budget")).toBeNull();
  fireEvent.change(screen.getByLabelText("Budget of the plot"), { target: { value: "70" } });
  expect(screen.getByLabelText<HTMLInputElement>("Budget").value).toBe("13.30");
  expect(
    within(table.getByRole("row", { name: /H100/ })).getByText("Over the budget"),
  ).toBeTruthy();
  expect(within(table.getByRole("row", { name: /A100/ })).getByText("Kept")).toBeTruthy();
  await waitFor(() =>
    expect(planned.at(-1)).toMatchObject({ infrastructure: { budget: { amount: "13.30" } } }),
  );
});

test("a budget must pay for saving the job too, as the service says", async () => {
  renderRoute("/new");
  const user = await fillForm();
  const table = within(await screen.findByRole("table", { name: "Options of the plan" }));
  const budget = screen.getByLabelText("Budget");
  const cheapest = () => table.getByRole("row", { name: /A100/ }).textContent;
  await user.type(budget, "11.99"); // more than the cost of nine in ten
  expect(cheapest()).toContain("Over the budgetneeds $12.00");
  await user.clear(budget);
  await user.type(budget, "12");
  expect(cheapest()).toContain("Kept");
});

test("the slider of the deadline greys out the options that take longer", async () => {
  renderRoute("/new");
  await fillForm();
  const table = within(await screen.findByRole("table", { name: "Options of the plan" }));
  fireEvent.change(screen.getByLabelText("Deadline of the plot"), { target: { value: "60" } });
  expect(
    within(table.getByRole("row", { name: /A100/ })).getByText("Misses the deadline"),
  ).toBeTruthy();
  expect(within(table.getByRole("row", { name: /H100/ })).getByText("Kept")).toBeTruthy();
});

test("a budget that the service refuses leaves no option, and says why at the field", async () => {
  renderRoute("/new");
  const user = await fillForm();
  const table = within(await screen.findByRole("table", { name: "Options of the plan" }));
  refuse("/v1/fine_tuning/plans", {
    message: "A budget of 0.5 USD is too small.",
    param: "infrastructure.budget.amount",
    code: "budget_too_small",
  });
  const budget = screen.getByLabelText("Budget");
  await user.type(budget, "0.5");
  await waitFor(() => expect(budget.getAttribute("aria-invalid")).toBe("true"));
  expect(table.getAllByText("Over the budget")).toHaveLength(2);
});

test("the form survives a reload of the page", async () => {
  const first = renderRoute("/new");
  const user = await fillForm();
  await user.type(screen.getByLabelText("Suffix of the name"), "tone-v3");
  expect(first.history.location.pathname).toBe("/new");
  document.body.innerHTML = "";
  renderRoute("/new");
  const suffix = (await screen.findByLabelText("Suffix of the name")) as HTMLInputElement;
  expect(suffix.value).toBe("tone-v3");
});

test("a job that is repeated fills the form", async () => {
  renderRoute(`/new?from=${JOB.id}`);
  await waitFor(() =>
    expect((screen.getByLabelText("Epochs") as HTMLInputElement).value).toBe("25"),
  );
  await waitFor(() => expect(planned).toHaveLength(1));
  expect(planned[0]).toMatchObject({
    model: "rekindle/tiny-llama",
    training_file: FILE.id,
    method: { type: "supervised", supervised: { hyperparameters: { n_epochs: 25 } } },
    training: { adapter: { type: "lora", r: 8, alpha: 32 }, max_seq_len: 128 },
    infrastructure: { budget: { amount: "20" } },
  });
});
