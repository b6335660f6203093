/** Choose the jobs to compare from a searchable list. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "../../api/client";
import { itemsOf, PAGE, pagesQuery } from "../../api/pages";
import { LoadMore } from "../../components/load-more";
import { Panel } from "../../components/panel";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { JobTag } from "../../components/tag";
import { Ago } from "../../components/time";
import styles from "./compare.module.css";

export const MOST_JOBS = 8;

type JobSummary = Schemas["JobSummary"];

const comparedQuery = pagesQuery(["jobs", "compare"], ({ after }) =>
  body(api.GET("/v1/fine_tuning/jobs", { params: { query: { limit: PAGE, after } } })),
);

interface JobPickerProps {
  chosen: readonly string[];
  onChoose: (jobs: string[]) => void;
}

export function JobPicker({ chosen, onChoose }: JobPickerProps) {
  const [text, setText] = useState("");
  const jobs = useInfiniteQuery(comparedQuery);
  const listed = itemsOf(jobs.data?.pages ?? []);
  const shown = listed.filter((job) => matches(job, text));
  const isFull = chosen.length >= MOST_JOBS;

  function toggle(id: string) {
    onChoose(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  }

  return (
    <Panel
      title="Jobs to compare"
      aside={
        <span className="small muted" role="status">
          {chosen.length} of at most {MOST_JOBS} chosen
        </span>
      }
    >
      <input
        type="search"
        className={styles.search}
        aria-label="Search the jobs"
        placeholder="Search by name, model or id"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      {jobs.isPending && <Loading lines={5} label="Loading the jobs" />}
      {jobs.error !== null && <ErrorBox error={jobs.error} retry={() => void jobs.refetch()} />}
      {jobs.data !== undefined && listed.length === 0 && (
        <Empty title="There is no job yet">
          <p>Jobs can be compared once there are two.</p>
        </Empty>
      )}
      {listed.length > 0 && (
        <ul className={styles.jobs} aria-label="Jobs">
          {shown.map((job) => (
            <li key={job.id}>
              <label>
                <input
                  type="checkbox"
                  checked={chosen.includes(job.id)}
                  disabled={isFull && !chosen.includes(job.id)}
                  onChange={() => toggle(job.id)}
                />
                <span className={styles.jobName}>
                  {job.user_provided_suffix ?? job.id}{" "}
                  <span className="small muted">{job.model}</span>
                </span>
                <span className={`small muted hide-narrow ${styles.jobMethod}`}>
                  {job.method.type}
                </span>
                <span className={`small muted hide-narrow ${styles.jobAge}`}>
                  <Ago at={job.created_at} />
                </span>
                <span className={styles.jobState}>
                  <JobTag job={job} />
                </span>
              </label>
            </li>
          ))}
          {shown.length === 0 && <li className="muted">No job has this in its name.</li>}
        </ul>
      )}
      <LoadMore query={jobs}>Load older jobs</LoadMore>
    </Panel>
  );
}

function matches(job: JobSummary, text: string): boolean {
  const all = `${job.user_provided_suffix ?? ""} ${job.model} ${job.id} ${job.method.type}`;
  return all.toLowerCase().includes(text.trim().toLowerCase());
}
