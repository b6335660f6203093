import { Link } from "@tanstack/react-router";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef, useState } from "react";
import type { Schemas } from "../../api/client";
import { JobTag } from "../../components/tag";
import { Ago, At } from "../../components/time";
import { integer, money } from "../../format";
import type { JobsSearch, Sort } from "../../search";
import styles from "./jobs-page.module.css";

type JobSummary = Schemas["JobSummary"];

const ROW_PX = 42;
const OVERSCAN = 12;
const COLUMNS: readonly { name: string; sort?: Sort; className?: string }[] = [
  { name: "Job", sort: "name" },
  { name: "State" },
  { name: "Model", className: "hide-narrow" },
  { name: "Steps", sort: "progress", className: "num" },
  { name: "Spent", sort: "cost", className: "num hide-narrow" },
  { name: "Saved", className: "num hide-narrow" },
  { name: "Ends", className: "hide-narrow" },
  { name: "Created", sort: "created", className: "hide-narrow" },
];

interface TableProps {
  jobs: JobSummary[];
  search: JobsSearch;
  change: (changed: Partial<JobsSearch>) => void;
  selected: ReadonlySet<string>;
  select: (ids: ReadonlySet<string>) => void;
  hasMore: boolean;
  loadMore: () => void;
}

/** Only the rows on the screen are in the document, so thousands scroll smoothly. */
export function JobsTable(props: TableProps) {
  const { jobs, selected, select, hasMore, loadMore } = props;
  const body = useRef<HTMLTableSectionElement>(null);
  const [top, setTop] = useState(0);
  useEffect(() => setTop(body.current?.offsetTop ?? 0), []);
  const rows = useWindowVirtualizer({
    count: jobs.length,
    estimateSize: () => ROW_PX,
    overscan: OVERSCAN,
    scrollMargin: top,
  });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;

  useEffect(() => {
    if (hasMore && last >= jobs.length - OVERSCAN * 2) loadMore();
  }, [hasMore, last, jobs.length, loadMore]);

  const above = (shown[0]?.start ?? top) - top;
  const below = rows.getTotalSize() - ((shown.at(-1)?.end ?? top) - top);
  const toggle = (id: string) => {
    const changed = new Set(selected);
    if (!changed.delete(id)) changed.add(id);
    select(changed);
  };
  return (
    <>
      <table className={styles.table} aria-rowcount={hasMore ? -1 : jobs.length + 1}>
        <caption className="visually-hidden">Jobs</caption>
        <Head {...props} />
        <tbody ref={body}>
          <Spacer height={above} />
          {shown.map(({ index, key }) => {
            const job = jobs[index];
            if (job === undefined) return null;
            return (
              <Row
                key={key}
                index={index}
                job={job}
                selected={selected.has(job.id)}
                toggle={toggle}
              />
            );
          })}
          <Spacer height={below} />
        </tbody>
      </table>
      <p className={`small muted ${styles.count}`} role="status">
        {hasMore
          ? `${integer(jobs.length)} jobs read; scroll for more`
          : `${integer(jobs.length)} ${jobs.length === 1 ? "job" : "jobs"}`}
      </p>
    </>
  );
}

function Spacer({ height }: { height: number }) {
  if (height <= 0) return null;
  return (
    <tr>
      <td className={styles.spacer} colSpan={COLUMNS.length + 1} style={{ height }} />
    </tr>
  );
}

function Head({ jobs, search, change, selected, select }: TableProps) {
  const sort = search.sort ?? "created";
  const order = search.order ?? "desc";
  const all = selected.size > 0 && selected.size >= jobs.length;
  return (
    <thead>
      <tr>
        <th className={styles.check}>
          <input
            type="checkbox"
            aria-label="Select all jobs that were read"
            checked={all}
            onChange={() => select(all ? new Set() : new Set(jobs.map(({ id }) => id)))}
          />
        </th>
        {COLUMNS.map((column) => {
          const by = column.sort;
          const current = by === sort;
          return (
            <th
              key={column.name}
              className={column.className}
              aria-sort={current ? (order === "asc" ? "ascending" : "descending") : undefined}
            >
              {by === undefined ? (
                column.name
              ) : (
                <button
                  type="button"
                  className={styles.sort}
                  onClick={() =>
                    change({ sort: by, order: current && order === "desc" ? "asc" : "desc" })
                  }
                >
                  {column.name}
                  <span aria-hidden="true">{current ? (order === "asc" ? " ↑" : " ↓") : ""}</span>
                </button>
              )}
            </th>
          );
        })}
      </tr>
    </thead>
  );
}

interface RowProps {
  index: number;
  job: JobSummary;
  selected: boolean;
  toggle: (id: string) => void;
}

const Row = memo(function Row({ index, job, selected, toggle }: RowProps) {
  const name = job.user_provided_suffix ?? job.id;
  return (
    <tr className={styles.row} aria-rowindex={index + 2} title={job.status_reason.message}>
      <td className={styles.check}>
        <input
          type="checkbox"
          aria-label={`Select ${name}`}
          checked={selected}
          onChange={() => toggle(job.id)}
        />
      </td>
      <td className={styles.name}>
        <Link to="/jobs/$jobId" params={{ jobId: job.id }} title={name}>
          <bdi>{name}</bdi>
        </Link>
      </td>
      <td>
        <JobTag job={job} />
      </td>
      <td className={`hide-narrow ${styles.name}`} title={job.model}>
        {job.model}
      </td>
      <td className="num">
        <span className="hide-narrow">
          {integer(job.progress.step)} / {integer(job.progress.total_steps)}
        </span>
        <span className="only-narrow">{Math.floor(job.progress.percent)} %</span>
      </td>
      <td className="num hide-narrow">{money(job.cost.spent)}</td>
      <td className="num hide-narrow good">{money(job.cost.saved)}</td>
      <td className="hide-narrow muted">
        <Ends job={job} />
      </td>
      <td className="hide-narrow muted">
        <Ago at={job.created_at} />
      </td>
    </tr>
  );
});

function Ends({ job }: { job: JobSummary }) {
  if (job.finished_at !== null) return <At at={job.finished_at} />;
  if (job.estimated_finish != null) return <Ago at={job.estimated_finish} />;
  return <>–</>;
}
