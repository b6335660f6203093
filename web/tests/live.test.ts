import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { type LiveState, subscribe } from "../src/api/live";

const server = setupServer();
beforeAll(() => server.listen());
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

function events(...frames: string[]) {
  return new HttpResponse(frames.map((frame) => `${frame}\n\n`).join(""), {
    headers: { "content-type": "text/event-stream" },
  });
}

/** Follow the stream until nothing more can come. */
async function follow(options: { silenceMs?: number } = {}) {
  const data: unknown[] = [];
  const states: LiveState[] = [];
  subscribe({
    ...options,
    path: "http://service.test/stream",
    onData: (one) => data.push(one),
    onState: (state) => states.push(state),
  });
  await vi.waitFor(() => expect(states.at(-1)).toBe("over"), { timeout: 10_000 });
  return { data, states };
}

test("a stream that breaks goes on after the last event that arrived", async () => {
  const asked: (string | null)[] = [];
  server.use(
    http.get("http://service.test/stream", ({ request }) => {
      asked.push(request.headers.get("last-event-id"));
      return asked.length === 1
        ? events('id: 5\ndata: {"data": "first"}')
        : events('id: 6\ndata: {"data": "second"}', "data: [DONE]");
    }),
  );
  const { data } = await follow();

  expect(data).toEqual(["first", "second"]);
  expect(asked).toEqual([null, "5"]);
});

test("pings are no data", async () => {
  server.use(
    http.get("http://service.test/stream", () =>
      events("event: ping\ndata: {}", 'data: {"data": 1}', "data: [DONE]"),
    ),
  );
  const { data } = await follow();

  expect(data).toEqual([1]);
});

test("a service that is away is asked again, and the page polls meanwhile", async () => {
  let calls = 0;
  server.use(
    http.get("http://service.test/stream", () => {
      calls += 1;
      return calls === 1 ? new HttpResponse(null, { status: 503 }) : events("data: [DONE]");
    }),
  );
  const { states } = await follow();

  expect(states).toEqual(["connecting", "polling", "connecting", "live", "over"]);
});

test("a job that is gone is not asked for again", async () => {
  let calls = 0;
  server.use(
    http.get("http://service.test/stream", () => {
      calls += 1;
      return new HttpResponse(null, { status: 404 });
    }),
  );
  await follow();

  expect(calls).toBe(1);
});

test("a service that closes every stream is not called in a loop (reconnect storm)", async () => {
  let calls = 0;
  server.use(
    http.get("http://service.test/stream", () => {
      calls += 1;
      return events();
    }),
  );
  const states: LiveState[] = [];
  const stop = subscribe({
    path: "http://service.test/stream",
    onData: () => undefined,
    onState: (state) => states.push(state),
  });
  await vi.waitFor(() => expect(calls).toBe(2), { timeout: 10_000 });
  stop();

  expect(states.filter((state) => state === "live").length).toBeLessThanOrEqual(2);
});

test("a stream that is silent, as after sleep, is opened again", async () => {
  const asked: (string | null)[] = [];
  server.use(
    http.get("http://service.test/stream", ({ request }) => {
      asked.push(request.headers.get("last-event-id"));
      if (asked.length > 1) return events("data: [DONE]");
      const frame = new TextEncoder().encode('id: 5\ndata: {"data": 1}\n\n');
      return new HttpResponse(new ReadableStream({ start: (c) => c.enqueue(frame) }), {
        headers: { "content-type": "text/event-stream" },
      });
    }),
  );
  await follow({ silenceMs: 1_000 });

  expect(asked).toEqual([null, "5"]);
});

/** Locks of which all are held, but for those that are named. */
function locksWith(isFree: (name: string) => boolean) {
  const request = async (name: string, _: LockOptions, hold: (lock: unknown) => unknown) =>
    hold(isFree(name) ? { name } : null);
  vi.stubGlobal("navigator", Object.create(navigator, { locks: { value: { request } } }));
}

test("a tab without a place reads the stream for a moment, again and again", async () => {
  const asked: (string | null)[] = [];
  server.use(
    http.get("http://service.test/stream", ({ request }) => {
      asked.push(request.headers.get("last-event-id"));
      if (asked.length > 1) return events("data: [DONE]");
      const frame = new TextEncoder().encode('id: 5\ndata: {"data": 1}\n\n');
      return new HttpResponse(new ReadableStream({ start: (c) => c.enqueue(frame) }), {
        headers: { "content-type": "text/event-stream" },
      });
    }),
  );
  locksWith(() => false);
  const { data, states } = await follow();
  vi.unstubAllGlobals();

  expect(data).toEqual([1]);
  expect(asked).toEqual([null, "5"]);
  expect(new Set(states)).toEqual(new Set(["polling", "over"]));
});

test("a tab takes the place that is free", async () => {
  server.use(http.get("http://service.test/stream", () => events("data: [DONE]")));
  const tried: string[] = [];
  locksWith((name) => tried.push(name) === 3);
  const { states } = await follow();
  vi.unstubAllGlobals();

  expect(tried).toHaveLength(3);
  expect(states).toEqual(["connecting", "live", "over"]);
});
