import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { itemsOf } from "../../api/pages";
import { allEventsQuery } from "../../api/queries";
import { LoadMore } from "../../components/load-more";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { At } from "../../components/time";
import styles from "./detail-tabs.module.css";
import lists from "./job-page.module.css";
import type { Job } from "./use-live-job";
import { Inputs } from "./why-panel";

/** Every event, newest first, page by page. */
export function EventsTab({ job }: { job: Job }) {
  const [level, setLevel] = useState("all");
  const [search, setSearch] = useState("");
  const events = useInfiniteQuery(allEventsQuery(job.id));

  if (events.data === undefined) {
    return events.error === null ? <Loading lines={8} /> : <ErrorBox error={events.error} />;
  }
  const wanted = search.toLowerCase();
  const shown = itemsOf(events.data.pages)
    .filter((event) => level === "all" || event.level === level)
    .filter(({ message, code }) => `${code} ${message}`.toLowerCase().includes(wanted));
  return (
    <>
      <div className={styles.bar}>
        <label>
          Level{" "}
          <select value={level} onChange={(event) => setLevel(event.target.value)}>
            <option value="all">all</option>
            <option value="info">info</option>
            <option value="warn">warning</option>
            <option value="error">error</option>
          </select>
        </label>
        <input
          type="search"
          aria-label="Search the events"
          placeholder="Search"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
        />
      </div>
      {shown.length === 0 && <Empty title="No event matches" />}
      <ol className={lists.events}>
        {shown.map((event) => (
          <li key={event.id}>
            <At at={event.created_at} />
            <div className={event.level === "error" ? "bad" : event.level === "warn" ? "warn" : ""}>
              {event.message}
              <Inputs event={event} />
            </div>
          </li>
        ))}
      </ol>
      <LoadMore query={events}>Older events</LoadMore>
    </>
  );
}
