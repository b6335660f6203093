import { useSyncExternalStore } from "react";
import { absolute, relative, timeOfDay } from "../format";

const listeners = new Set<() => void>();
let now = Math.floor(Date.now() / 1000);
let timer: ReturnType<typeof setInterval> | undefined;

function listen(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Math.floor(Date.now() / 1000);
    for (const one of listeners) one();
  }, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time in Unix seconds; one clock for the whole page. */
export function useNow(): number {
  return useSyncExternalStore(listen, () => now);
}

/** "5 min ago", with date and time on hover and for screen readers. */
export function Ago({ at }: { at: number }) {
  const text = relative(at, useNow());
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={absolute(at)}>
      {text}
    </time>
  );
}

/** The time of day, with how long ago that is on hover. */
export function At({ at }: { at: number }) {
  const current = useNow();
  return (
    <time
      dateTime={new Date(at * 1000).toISOString()}
      title={`${absolute(at)} (${relative(at, current)})`}
    >
      {timeOfDay(at, current)}
    </time>
  );
}
