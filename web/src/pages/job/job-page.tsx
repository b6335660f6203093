import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect } from "react";
import { ApiError } from "../../api/client";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { JobTag } from "../../components/tag";
import { Actions } from "./actions";
import { AttemptsPanel } from "./attempts-panel";
import { CostPanel } from "./cost-panel";
import { CurvesPanel } from "./curves-panel";
import { DetailTabs } from "./detail-tabs";
import styles from "./job-page.module.css";
import { ProgressPanel } from "./progress-panel";
import { type Job, nameOf, useLiveJob } from "./use-live-job";
import { WhyPanel } from "./why-panel";

const route = getRouteApi("/jobs/$jobId");

export function JobPage() {
  const { jobId } = route.useParams();
  const { data: job, error, refetch, live } = useLiveJob(jobId);

  if (error instanceof ApiError && error.status === 404) {
    return (
      <Empty title="There is no such job">
        <p>{error.message}</p>
        <Link to="/jobs">All jobs</Link>
      </Empty>
    );
  }
  if (job === undefined) {
    return error === null ? (
      <Loading lines={14} label="Loading the job" />
    ) : (
      <ErrorBox error={error} retry={() => void refetch()} />
    );
  }
  return (
    <>
      <Head job={job} live={live} />
      {error !== null && <ErrorBox error={error} retry={() => void refetch()} />}
      <div className="grid">
        <ProgressPanel job={job}>
          <Link to="/new" search={{ from: job.id }}>
            Repeat this job
          </Link>
        </ProgressPanel>
        <CostPanel job={job} />
        <AttemptsPanel job={job} />
        <CurvesPanel job={job} />
        <WhyPanel job={job} />
      </div>
      <DetailTabs job={job} />
    </>
  );
}

function Head({ job, live }: { job: Job; live: string }) {
  const name = nameOf(job);
  useEffect(() => {
    const percent = job.progress.total_steps > 0 ? `${Math.floor(job.progress.percent)} % ` : "";
    document.title = `${percent}${name} · Rekindle`;
    return () => {
      document.title = "Rekindle";
    };
  }, [name, job.progress.percent, job.progress.total_steps]);
  return (
    <header>
      <div className="row">
        <Link to="/jobs" className="muted">
          Jobs
        </Link>
        <span className="muted" aria-hidden="true">
          /
        </span>
        <h1 className={styles.name}>
          <bdi>{name}</bdi>
        </h1>
        <JobTag job={job} />
        {live === "polling" && (
          <span className="small warn" role="status">
            No live connection; the page updates every 5 s.
          </span>
        )}
        <span className="grow" />
        <Actions job={job} />
      </div>
      <p className={styles.why}>{job.status_reason.message}</p>
      {job.error !== null && (
        <p className="bad">
          {job.error.message} <span className="muted small">Code: {job.error.code}</span>
        </p>
      )}
    </header>
  );
}
