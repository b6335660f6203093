/** What of the system's answer a person should look at, the worst first. */

import { duration, words } from "../../format";
import type { System } from "./system-page";

export interface Alert {
  key: string;
  level: "bad" | "warn";
  text: string;
  job?: { id: string; name: string };
  since: number | null;
}

const LATE_SECONDS = 60; // a healthy reconciler takes a row in seconds

export function alertsOf(system: System): Alert[] {
  return [
    ...system.help_wanted.map(({ job, job_name, attempt, message, since }) => ({
      key: `help ${job} ${attempt}`,
      level: "bad" as const,
      text: message,
      job: { id: job, name: job_name ?? job },
      since,
    })),
    ...system.work
      .filter(({ lag_seconds }) => lag_seconds >= LATE_SECONDS)
      .map(({ name, due, lag_seconds }) => ({
        key: `work ${name}`,
        level: "bad" as const,
        text: `${due} ${name} wait for a reconciler, the oldest for ${duration(lag_seconds)}. Check that a reconciler runs.`,
        since: null,
      })),
    ...system.turns
      .filter(({ is_held }) => !is_held)
      .map(({ what, ends_at }) => ({
        key: `turn ${what}`,
        level: "warn" as const,
        text: `No replica does: ${words(what).toLowerCase()}.`,
        since: ends_at,
      })),
    ...system.this_replica.late_loops.map((loop) => ({
      key: `loop ${loop}`,
      level: "bad" as const,
      text: `The loop ${loop} of this replica has not turned for too long. Restart the replica.`,
      since: null,
    })),
    ...system.readings
      .filter(({ trouble }) => trouble !== null)
      .map(({ what, trouble, trouble_at }) => ({
        key: `reading ${what}`,
        level: "warn" as const,
        text: `${words(what)} could not be read: ${trouble}`,
        since: trouble_at,
      })),
    ...system.circuits
      .filter(({ closed_until }) => closed_until !== null)
      .map(({ region, failures }) => ({
        key: `circuit ${region}`,
        level: "warn" as const,
        text: `Requests to Azure in ${region} failed ${failures} times in a row; none is sent for a while.`,
        since: null,
      })),
  ];
}
