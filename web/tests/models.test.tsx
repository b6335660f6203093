import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { lineage, shortName, sourceOf } from "../src/pages/models/lineage";
import { usage } from "../src/pages/models/model-files";
import { renderRoute } from "./render-route";

const BASE = { id: "org/base", object: "model", created: 1, owned_by: "base" } as const;
const tuned = (job: string, suffix: string, base: string, created = 2) =>
  ({
    id: `ft:org/base:proj-1:${suffix}:${job}`,
    object: "model",
    created,
    owned_by: "proj-1",
    base_model: base,
    job,
  }) as const;
const FIRST = tuned("ftjob-1", "first", BASE.id);
const CHECKPOINT = { ...FIRST, id: `${FIRST.id}:ckpt-step-40`, step: 40 };
const SECOND = tuned("ftjob-2", "second", CHECKPOINT.id, 3);
const CARD = [
  "---",
  "tags: [sft]",
  "---",
  "",
  "# A tuned model",
  "",
  "<img src=x onerror=alert(1)>",
  "",
  "![tracker](http://elsewhere.example/pixel.png)",
  "",
  "[bad](javascript:alert(1))",
  "",
  "```python",
  'folder = "."  # where this file is',
  "load(folder)",
  "```",
].join("\n");
const listed = (data: object[]) => ({ object: "list", data, has_more: false });

const server = setupServer(
  http.get("*/v1/models", () => HttpResponse.json(listed([FIRST, CHECKPOINT, SECOND, BASE]))),
  http.get("*/v1/fine_tuning/jobs", () => HttpResponse.json(listed([]))),
  http.get("*/v1/fine_tuning/jobs/:job/storage", () =>
    HttpResponse.json({
      folders: [
        { kind: "model", bytes: 3 * 1024 ** 3, tier: "hot" },
        { kind: "checkpoint", step_number: 40, bytes: 1024, tier: "cool" },
      ],
    }),
  ),
  http.get("*/v1/fine_tuning/jobs/:job/model", () =>
    HttpResponse.json(listed([{ name: "model.safetensors", bytes: 2048, sha256: "ab12" }])),
  ),
  http.get("*/v1/fine_tuning/jobs/:job/model/README.md", () => new HttpResponse(CARD)),
);
beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

const address = (id: string) => `/models?model=${encodeURIComponent(id)}`;

test("a tuned model is drawn below the model that it was trained from", async () => {
  renderRoute("/models");
  const base = (await screen.findByRole("link", { name: "org/base" })).closest("li");
  const first = within(base as HTMLElement)
    .getByRole("link", { name: "first" })
    .closest("li");
  expect(within(first as HTMLElement).getByRole("link", { name: "second" })).toBeTruthy();
  expect(screen.getByText(/from step 40/)).toBeTruthy();
});

test("a model whose source was deleted stays below the first base model", () => {
  const [base] = lineage([SECOND, BASE]);
  expect(base?.name).toBe("org/base");
  expect(base?.children.map(({ name, model }) => [name, model])).toEqual([["first", null]]);
  expect(base?.children[0]?.children[0]?.name).toBe("second");
});

test("a checkpoint of a job without a final model has its place too", () => {
  const [base] = lineage([CHECKPOINT, BASE]);
  expect(base?.children[0]?.checkpoints.map(({ step }) => step)).toEqual([40]);
});

test("names tell their job and step, whatever the base model is called", () => {
  expect(sourceOf("ft:a/b:proj-1:x:ftjob-9:ckpt-step-7")).toEqual({ job: "ftjob-9", step: 7 });
  expect(sourceOf("ftjob-9:ckpt-step-7")).toEqual({ job: "ftjob-9", step: 7 });
  expect(sourceOf("a/b")).toBeNull();
  expect(shortName("ft:a/b:proj-1::ftjob-9")).toBe("ftjob-9");
});

test("the card is shown without the HTML, pictures and scripts that are in it", async () => {
  renderRoute(address(FIRST.id));
  const card = (await screen.findByRole("heading", { name: "A tuned model" })).closest("article");
  expect(card?.querySelector("img, script")).toBeNull();
  expect(card?.querySelector('[href^="javascript"]')).toBeNull();
  expect(card?.textContent).not.toContain("tags:");
});

test("the command to load a model is the one of its card, in the folder of the download", async () => {
  renderRoute(address(FIRST.id));
  expect(await screen.findByText("rekindle download ftjob-1 first")).toBeTruthy();
  expect(usage(CARD, "first")).toBe('folder = "first"\nload(folder)');
  expect(usage(undefined, "first")).toContain('folder = "first"');
});

test("files are listed with size and checksum", async () => {
  renderRoute(address(FIRST.id));
  const row = (await screen.findByText("model.safetensors")).closest("tr");
  expect(row?.textContent).toContain("2.0 KiB");
  expect(row?.textContent).toContain("ab12");
});

test("deleting says how much is freed, and only then deletes", async () => {
  const deleted: string[] = [];
  server.use(
    http.delete(/\/v1\/models\/(.+)/, ({ request }) => {
      deleted.push(decodeURIComponent(new URL(request.url).pathname));
      return HttpResponse.json({ id: FIRST.id, bytes_freed: 1 });
    }),
  );
  const user = userEvent.setup();
  const { history } = renderRoute(address(FIRST.id));
  await screen.findByText(/tier hot/);
  await user.click(screen.getByRole("button", { name: "Delete" }));
  const dialog = await screen.findByRole("alertdialog");
  expect(dialog.textContent).toContain("3.0 GiB in storage is freed");
  expect(deleted).toEqual([]);
  await user.click(within(dialog).getByRole("button", { name: "Delete the model" }));
  await waitFor(() => expect(deleted).toEqual([`/v1/models/${FIRST.id}`]));
  await waitFor(() => expect(history.location.search).toBe(""));
});

test("a deleted model's address says so", async () => {
  renderRoute(address("ft:org/base:proj-1:gone:ftjob-3"));
  expect(await screen.findByText("There is no such model")).toBeTruthy();
});

test("the address keeps the search", async () => {
  renderRoute("/models?search=second");
  expect(await screen.findByRole("link", { name: "second" })).toBeTruthy();
  expect(screen.getByLabelText<HTMLInputElement>("Search the models").value).toBe("second");
});
