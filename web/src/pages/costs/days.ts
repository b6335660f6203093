/** The costs of the API as one row a day, and as CSV. */

import type { Schemas } from "../../api/client";

export type Costs = Schemas["Costs"];

export interface Day {
  start: number; // Unix seconds, midnight UTC
  machines: number;
  storage: number;
  spent: number;
  onDemand: number;
  saved: number;
}

export function daysOf(costs: Costs): Day[] {
  return costs.data.map((bucket) => {
    const sum = (item: string) =>
      bucket.results
        .filter(({ line_item }) => line_item === item)
        .reduce((total, { amount }) => total + amount.value, 0);
    const machines = sum("machines");
    const storage = sum("storage");
    return {
      start: bucket.start_time,
      machines,
      storage,
      spent: machines + storage,
      onDemand: Number(bucket.on_demand_equivalent),
      saved: Number(bucket.saved),
    };
  });
}

const named = new Intl.DateTimeFormat(undefined, {
  day: "numeric",
  month: "short",
  timeZone: "UTC",
});

/** `26 Nov`, as UTC has it: the days of the API begin at midnight UTC. */
export function dayName(start: number): string {
  return named.format(new Date(start * 1000));
}

/** US dollars by day; RFC 4180 lines. */
export function csvOf(days: readonly Day[]): string {
  const head = "day,machines_usd,storage_usd,spent_usd,on_demand_equivalent_usd,saved_usd";
  const rows = days.map((day) => {
    const date = new Date(day.start * 1000).toISOString().slice(0, 10);
    const amounts = [day.machines, day.storage, day.spent, day.onDemand, day.saved];
    return [date, ...amounts.map((amount) => amount.toFixed(4))].join(",");
  });
  return `${[head, ...rows].join("\r\n")}\r\n`;
}
