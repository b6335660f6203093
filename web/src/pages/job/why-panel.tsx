import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { eventsQuery } from "../../api/queries";
import { Panel } from "../../components/panel";
import { ErrorBox, Loading } from "../../components/states";
import { At } from "../../components/time";
import styles from "./job-page.module.css";
import type { Job } from "./use-live-job";

type Event = Schemas["Event"];

const ROUTINE = /^(node\.|checkpoint\.|attempt\.(starting|running|terminating)|cost\.)/;
const SHOWN = 30;

/** The decisions and what led to them, newest first. */
export function WhyPanel({ job }: { job: Job }) {
  const { data, error, refetch } = useQuery(eventsQuery(job.id));
  return (
    <Panel title="Why" span={4}>
      {data === undefined ? (
        error === null ? (
          <Loading lines={8} />
        ) : (
          <ErrorBox error={error} retry={() => void refetch()} />
        )
      ) : (
        <div className={styles.rest}>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls is reached by keyboard */}
          <section className={styles.scroll} tabIndex={0} aria-label="Decisions, newest first">
            <ol className={styles.events}>
              {decisions(data.data).map((event) => (
                <li key={event.id}>
                  <At at={event.created_at} />
                  <div className={event.level === "error" ? "bad" : undefined}>
                    {event.message}
                    <Inputs event={event} />
                  </div>
                </li>
              ))}
            </ol>
          </section>
        </div>
      )}
    </Panel>
  );
}

/** Events that decide or end something; an error is always one. */
export function decisions(events: Event[]): Event[] {
  return events
    .filter(({ code, level }) => level !== "info" || !ROUTINE.test(code))
    .slice(0, SHOWN);
}

/** What the decision was made from. */
export function Inputs({ event }: { event: Event }) {
  const data = Object.entries(event.data ?? {});
  if (data.length === 0) return null;
  return (
    <details className="small muted">
      <summary>{event.code}</summary>
      {data.map(([name, value]) => (
        <div key={name}>
          {name}: {typeof value === "object" ? JSON.stringify(value) : String(value)}
        </div>
      ))}
    </details>
  );
}
