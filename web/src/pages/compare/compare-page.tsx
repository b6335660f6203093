import { type UseQueryResult, useQueries } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Schemas } from "../../api/client";
import { jobQuery, metricsQuery, POLL_MS } from "../../api/queries";
import { Button } from "../../components/button";
import { ErrorBox, Loading } from "../../components/states";
import styles from "./compare.module.css";
import type { Job } from "./configuration";
import { CurvesPanel } from "./curves-panel";
import { JobPicker, MOST_JOBS } from "./job-picker";
import type { Run } from "./series";
import { type ComparedJob, DifferenceTable, ResultTable } from "./tables";

const route = getRouteApi("/compare");
const COLORS = 6;

export function ComparePage() {
  const { jobs: asked } = route.useSearch();
  const navigate = route.useNavigate();
  const chosen = useMemo(() => [...new Set(asked ?? [])].slice(0, MOST_JOBS), [asked]);
  const [picking, setPicking] = useState(chosen.length < 2);

  function choose(jobs: string[]) {
    void navigate({ search: jobs.length > 0 ? { jobs } : {}, replace: true });
  }

  return (
    <>
      <header className="row">
        <h1>Compare</h1>
        <span className="grow" />
        {chosen.length > 0 && (
          <Button aria-expanded={picking} onClick={() => setPicking(!picking)}>
            {picking ? "Hide the list" : "Choose jobs"}
          </Button>
        )}
      </header>
      {(picking || chosen.length === 0) && (
        <div className="grid">
          <JobPicker chosen={chosen} onChoose={choose} />
        </div>
      )}
      {chosen.length > 0 && <Comparison chosen={chosen} onChoose={choose} />}
    </>
  );
}

interface ComparisonProps {
  chosen: readonly string[];
  onChoose: (jobs: string[]) => void;
}

function Comparison({ chosen, onChoose }: ComparisonProps) {
  const jobs = useQueries({
    queries: chosen.map((id) => ({
      ...jobQuery(id),
      refetchInterval: ({ state }: { state: { data?: Job } }) => pollWhileLive(state.data),
    })),
    combine: answers<Job>,
  });
  const metrics = useQueries({
    queries: chosen.map((id, at) => ({
      ...metricsQuery(id),
      refetchInterval: pollWhileLive(jobs.data[at]),
    })),
    combine: answers<Schemas["MetricList"]>,
  });
  const failed = chosen.flatMap((id, at) => {
    const error = jobs.errors[at] ?? metrics.errors[at] ?? null;
    return error === null ? [] : [{ id, error }];
  });
  const isLoading = jobs.isPending || metrics.isPending;
  const compared = useMemo(() => comparedJobs(jobs.data, metrics.data), [jobs.data, metrics.data]);
  const [wasShown, setWasShown] = useState(false);
  if (!isLoading && !wasShown) setWasShown(true); // later, a job that is added comes by itself
  const runs = useMemo(() => compared.map(({ run }) => run), [compared]);

  return (
    <>
      {failed.map(({ id, error }) => (
        <div key={id} className={styles.failed}>
          <ErrorBox error={new Error(`Job ${id}: ${error.message}`)} />
          <Button onClick={() => onChoose(chosen.filter((one) => one !== id))}>
            Leave this job out
          </Button>
        </div>
      ))}
      {isLoading && !wasShown && <Loading lines={12} label="Loading the jobs" />}
      {wasShown && compared.length > 0 && (
        <>
          <CurvesPanel runs={runs} />
          <div className="grid">
            <ResultTable compared={compared} />
            {compared.length > 1 && <DifferenceTable compared={compared} />}
          </div>
        </>
      )}
    </>
  );
}

function pollWhileLive(job: Job | undefined): number | false {
  return job !== undefined && job.finished_at === null ? POLL_MS : false;
}

interface Answers<T> {
  data: (T | undefined)[];
  errors: (Error | null)[];
  isPending: boolean;
}

/** Answers side by side; `data` is the same list while no answer changed. */
function answers<T>(results: UseQueryResult<T>[]): Answers<T> {
  return {
    data: results.map((result) => result.data),
    errors: results.map((result) => result.error),
    isPending: results.some((result) => result.isPending),
  };
}

/** The jobs that have come, each with its curves. */
function comparedJobs(
  jobs: readonly (Job | undefined)[],
  metrics: readonly (Schemas["MetricList"] | undefined)[],
): ComparedJob[] {
  const found = jobs.filter((job) => job !== undefined);
  return jobs.flatMap((job, at): ComparedJob[] => {
    const rows = metrics[at]?.data;
    if (job === undefined || rows === undefined) return [];
    const run: Run = {
      id: job.id,
      name: nameOf(job, found),
      color: `series-${(at % COLORS) + 1}`,
      dash: at >= COLORS,
      rows,
    };
    return [{ job, run }];
  });
}

/** The suffix of the job, with the end of its id where another one has the same suffix. */
function nameOf(job: Job, all: readonly Job[]): string {
  const name = job.user_provided_suffix;
  const end = job.id.slice(-6);
  if (name === null) return end;
  const isAlone = all.filter((one) => one.user_provided_suffix === name).length === 1;
  return isAlone ? name : `${name} ${end}`;
}
