/** Server-sent events with a key in a header, which the browser's EventSource cannot send. */

import { EventSourceParserStream } from "eventsource-parser/stream";
import { ApiError, errorOf } from "./client";
import { storedKey } from "./session";
import { takePlace } from "./stream-places";

const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 30_000;
const SILENCE_MS = 45_000; // three pings of the service: the connection died, for example in sleep
const GLANCE_MS = 1_000; // how long a tab without a place reads at a time
const BETWEEN_GLANCES_MS = 4_000;

export type LiveState = "connecting" | "live" | "polling" | "over";

export interface Subscription {
  path: string;
  lastId?: string; // go on after this event
  onData: (data: unknown, kind: string) => void;
  onState: (state: LiveState) => void;
  silenceMs?: number;
}

/**
 * Read a stream until it says that it is over; connect again after a break. A hidden tab rests.
 * A visible one without a place among those that hold a connection reads for a second at a time.
 */
export function subscribe({ path, lastId, onData, onState, silenceMs }: Subscription): () => void {
  const stop = new AbortController();
  let connection = new AbortController();
  let retry = FIRST_RETRY_MS;

  async function read(isGlance: boolean): Promise<boolean> {
    connection = new AbortController();
    const headers: Record<string, string> = { authorization: `Bearer ${storedKey()}` };
    if (lastId !== undefined) headers["last-event-id"] = lastId;
    const response = await fetch(path, { headers, signal: connection.signal });
    if (!response.ok || response.body === null) throw await errorOf(response);
    if (!isGlance) onState("live");
    const end = isGlance ? Date.now() + GLANCE_MS : Number.POSITIVE_INFINITY;
    const events = response.body
      .pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array<ArrayBuffer>>)
      .pipeThrough(new EventSourceParserStream());
    for await (const event of chunks(events, isGlance ? GLANCE_MS : (silenceMs ?? SILENCE_MS))) {
      retry = FIRST_RETRY_MS;
      if (event.data === "[DONE]") return true;
      lastId = event.id ?? lastId;
      if (event.event !== "ping") onData(JSON.parse(event.data).data, event.event ?? "message");
      if (Date.now() > end) return false;
    }
    return false;
  }

  /** Connect once; true when there is nothing more to connect for. */
  async function connect(isGlance: boolean): Promise<boolean> {
    onState(isGlance ? "polling" : "connecting");
    try {
      return await read(isGlance);
    } catch (error) {
      if (error instanceof ApiError && (error.status === 401 || error.status === 404)) return true;
      if (!stop.signal.aborted) onState("polling");
      return false;
    }
  }

  async function run(): Promise<void> {
    while (!stop.signal.aborted) {
      await visible(stop.signal);
      const free = await takePlace();
      if (stop.signal.aborted || document.hidden) {
        free?.();
        continue;
      }
      const isOver = await connect(free === null).finally(free);
      if (stop.signal.aborted) return;
      if (isOver) return onState("over");
      // A proxy or a service that closes every stream is not called in a loop.
      const rest = free === null ? BETWEEN_GLANCES_MS : retry * (0.5 + Math.random());
      if (free !== null) retry = Math.min(retry * 2, LONGEST_RETRY_MS);
      await pause(rest, stop.signal);
    }
  }

  const leave = () => {
    if (document.hidden) connection.abort();
  };
  document.addEventListener("visibilitychange", leave);
  stop.signal.addEventListener("abort", () => {
    document.removeEventListener("visibilitychange", leave);
    connection.abort();
  });
  void run();
  return () => stop.abort();
}

/** What the stream brings; it ends where it brings nothing for long. */
async function* chunks<T>(stream: ReadableStream<T>, silenceMs: number): AsyncGenerator<T> {
  const reader = stream.getReader();
  let silence: ReturnType<typeof setTimeout> | undefined;
  try {
    for (;;) {
      silence = setTimeout(() => reader.cancel().catch(() => undefined), silenceMs);
      const { done, value } = await reader.read();
      clearTimeout(silence);
      if (done) return;
      yield value;
    }
  } finally {
    clearTimeout(silence);
    reader.cancel().catch(() => undefined);
  }
}

function visible(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look, { once: true });
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
