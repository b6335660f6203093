/** Prices and counts of the API as the points of a chart. */

import type { Schemas } from "../../api/client";

interface Points {
  x: number[]; // Unix seconds
  values: (number | null)[];
}

/** A price holds until the next one; the line begins and ends with the days asked for. */
export function priceLine(
  prices: readonly Schemas["PricePoint"][],
  since: number,
  until: number,
): Points {
  const x = prices.map(({ at }) => Math.max(at, since));
  const values = prices.map(({ per_hour }) => Number(per_hour));
  return { x: [...x, until], values: [...values, values.at(-1) ?? null] };
}

interface Trace {
  metadata: { gap_seconds: number; start_time: string; seen: [number, number][] };
  data: number[];
}

export interface Counts extends Points {
  knownSeconds: number;
}

/** The counts of an availability trace, from the first known one to the last; gaps are null. */
export function countsOf(file: unknown): Counts | null {
  if (file === null) return null;
  const { metadata, data } = file as Trace;
  const [first, last] = [metadata.seen[0]?.[0], metadata.seen.at(-1)?.[1]];
  if (first === undefined || last === undefined) return null;
  const start = Date.parse(metadata.start_time) / 1000;
  const known = new Set(metadata.seen.flatMap(([from, to]) => range(from, to)));
  const ticks = range(first, last);
  return {
    x: ticks.map((tick) => start + tick * metadata.gap_seconds),
    values: ticks.map((tick) => (known.has(tick) ? (data[tick] ?? null) : null)),
    knownSeconds: known.size * metadata.gap_seconds,
  };
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from }, (_, at) => from + at);
}
