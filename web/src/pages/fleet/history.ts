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

/** The counts of an availability trace; null where no job asked, so that nothing is known. */
export function countsOf(file: unknown): Points | null {
  if (file === null) return null;
  const { metadata, data } = file as Trace;
  const start = Date.parse(metadata.start_time) / 1000;
  const values: (number | null)[] = data.map(() => null);
  for (const [from, to] of metadata.seen) {
    for (let tick = from; tick < to; tick += 1) values[tick] = data[tick] ?? null;
  }
  return { x: data.map((_, tick) => start + tick * metadata.gap_seconds), values };
}
