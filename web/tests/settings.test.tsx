import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { renderRoute } from "./render-route";

const KEY = {
  id: "key-1",
  object: "api_key",
  name: "ci",
  hint: "rk-...cafe",
  scope: "write",
  created_at: 1_795_000_000,
  created_by: null,
  expires_at: null,
  last_used_at: null,
};
const SECRET = "rk-secret-of-the-new-key";
const listed = (data: object[]) => ({ object: "list", data, has_more: false });

const server = setupServer(
  http.get("*/v1/api_keys", () => HttpResponse.json(listed([KEY]))),
  http.post("*/v1/api_keys", async ({ request }) => {
    const { name, scope } = (await request.json()) as { name: string; scope: string };
    return HttpResponse.json({ ...KEY, id: "key-2", name, scope, key: SECRET });
  }),
  http.get("*/v1/organization/projects", () =>
    HttpResponse.json(listed([{ id: "proj-1", name: "team-a", created_at: 1_795_000_000 }])),
  ),
);
beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
beforeEach(() => sessionStorage.setItem("rekindle.key", "rk-the-key-of-this-tab"));
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

test("a new key is shown once and then never again", async () => {
  const user = userEvent.setup();
  renderRoute("/settings");
  await user.type(await screen.findByLabelText("Name of a new key"), "laptop");
  await user.click(screen.getByRole("button", { name: "Create key" }));
  expect(await screen.findByText(SECRET)).toBeTruthy();
  await user.click(screen.getByRole("button", { name: "I have stored it" }));
  expect(screen.queryByText(SECRET)).toBeNull();
});

test("a key expires after the days that were chosen", async () => {
  const asked: { expires_at?: number }[] = [];
  server.use(
    http.post("*/v1/api_keys", async ({ request }) => {
      asked.push((await request.json()) as { expires_at?: number });
      return HttpResponse.json({ ...KEY, key: SECRET });
    }),
  );
  const user = userEvent.setup();
  renderRoute("/settings");
  await user.type(await screen.findByLabelText("Name of a new key"), "laptop");
  await user.selectOptions(screen.getByLabelText("Valid for"), "30 days");
  await user.click(screen.getByRole("button", { name: "Create key" }));
  await screen.findByText(SECRET);
  const days = ((asked[0]?.expires_at ?? 0) - Date.now() / 1000) / 86_400;
  expect(Math.round(days)).toBe(30);
});

test("keys beyond the first page are read when they are asked for", async () => {
  server.use(
    http.get("*/v1/api_keys", ({ request }) => {
      const after = new URL(request.url).searchParams.get("after");
      return HttpResponse.json(
        after === null
          ? { ...listed([KEY]), has_more: true, last_id: KEY.id }
          : listed([{ ...KEY, id: "key-0", name: `older than ${after}` }]),
      );
    }),
  );
  const user = userEvent.setup();
  renderRoute("/settings");
  await user.click(await screen.findByRole("button", { name: "Older keys" }));
  expect(await screen.findByText("older than key-1")).toBeTruthy();
  expect(screen.getByText("ci")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Older keys" })).toBeNull();
});

test("revoking asks first, and only then revokes", async () => {
  const revoked: string[] = [];
  server.use(
    http.delete("*/v1/api_keys/:id", ({ params }) => {
      revoked.push(String(params.id));
      return HttpResponse.json({ id: "key-1", keys_left: 1 });
    }),
  );
  const user = userEvent.setup();
  renderRoute("/settings");
  await user.click(await screen.findByRole("button", { name: "Revoke ci" }));
  const dialog = await screen.findByRole("alertdialog");
  expect(within(dialog).getByText(/opens nothing any more/)).toBeTruthy();
  expect(revoked).toEqual([]);
  await user.click(within(dialog).getByRole("button", { name: "Revoke the key" }));
  await waitFor(() => expect(revoked).toEqual(["key-1"]));
});

test("who revokes the key of this tab reads that it signs them out", async () => {
  server.use(
    http.get("*/v1/api_keys", () => HttpResponse.json(listed([{ ...KEY, hint: "rk-...s-tab" }]))),
  );
  const user = userEvent.setup();
  renderRoute("/settings");
  await user.click(await screen.findByRole("button", { name: "Revoke ci" }));
  expect(await screen.findByText(/so you are signed out/)).toBeTruthy();
});

test("who is no operator reads what key the projects need", async () => {
  server.use(
    http.get("*/v1/organization/projects", () =>
      HttpResponse.json(
        { error: { message: "This needs a key of the scope 'operator'.", code: "no_scope" } },
        { status: 403 },
      ),
    ),
  );
  renderRoute("/settings");
  expect(await screen.findByText("This needs an operator's key")).toBeTruthy();
  expect(screen.getByText("This needs a key of the scope 'operator'.")).toBeTruthy();
  expect(await screen.findByText("ci")).toBeTruthy();
});
