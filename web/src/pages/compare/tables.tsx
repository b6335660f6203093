/** Results and configuration of the chosen jobs, a column a job. */

import { Link } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { Panel } from "../../components/panel";
import { JobTag } from "../../components/tag";
import { integer } from "../../format";
import styles from "./compare.module.css";
import { bestOf, configuration, type Job, RESULTS } from "./configuration";
import { Swatch } from "./curves-panel";
import type { Run } from "./series";

export interface ComparedJob {
  job: Job;
  run: Run;
}

export function ResultTable({ compared }: { compared: readonly ComparedJob[] }) {
  const jobs = compared.map(({ job }) => job);
  const results = RESULTS.filter((result) => jobs.some((job) => result.of(job) !== null));
  return (
    <Panel
      title="Results"
      aside={
        <span className="small muted">
          <strong className="good">Best</strong> in green; cost and time among jobs that succeeded
        </span>
      }
    >
      <Table label="Results" compared={compared}>
        <tr>
          <th scope="row">Status</th>
          {jobs.map((job) => (
            <td key={job.id}>
              <JobTag job={job} />
            </td>
          ))}
        </tr>
        <tr>
          <th scope="row">Steps</th>
          {jobs.map((job) => (
            <td key={job.id} className="num">
              {integer(job.progress.step)} of {integer(job.progress.total_steps)}
            </td>
          ))}
        </tr>
        {results.map((result) => {
          const best = bestOf(result, jobs);
          return (
            <tr key={result.label}>
              <th scope="row">{result.label}</th>
              {jobs.map((job, at) => {
                const value = result.of(job);
                const text = value === null ? "–" : result.format(value);
                return (
                  <td key={job.id} className="num">
                    {best[at] ? (
                      <strong className="good">
                        {text} <span className="small">best</span>
                      </strong>
                    ) : (
                      text
                    )}
                  </td>
                );
              })}
            </tr>
          );
        })}
      </Table>
    </Panel>
  );
}

export function DifferenceTable({ compared }: { compared: readonly ComparedJob[] }) {
  const [all, setAll] = useState(false);
  const rows = configuration(compared.map(({ job }) => job));
  const shown = all ? rows : rows.filter((row) => row.differs);
  return (
    <Panel
      title={all ? "Configuration" : "Configuration: differences"}
      aside={
        <label className={styles.check}>
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
          Show equal values too
        </label>
      }
    >
      {shown.length === 0 ? (
        <p className="muted">These jobs have the same configuration.</p>
      ) : (
        <Table label="Configuration" compared={compared}>
          {shown.map((row) => (
            <tr key={row.name}>
              <th scope="row">
                <code>{row.name}</code>
              </th>
              {row.values.map((value, at) => (
                <td key={compared[at]?.job.id} className={value === null ? "muted" : undefined}>
                  {value ?? "–"}
                </td>
              ))}
            </tr>
          ))}
        </Table>
      )}
    </Panel>
  );
}

interface TableProps {
  label: string;
  compared: readonly ComparedJob[];
  children: ReactNode;
}

function Table({ label, compared, children }: TableProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be in reach of the keyboard
    <section className={styles.scroll} aria-label={label} tabIndex={0}>
      <table className={styles.table}>
        <thead>
          <tr>
            <th scope="col">
              <span className="visually-hidden">Figure</span>
            </th>
            {compared.map(({ job, run }) => (
              <th key={job.id} scope="col">
                <Swatch run={run} />
                <Link to="/jobs/$jobId" params={{ jobId: job.id }}>
                  {run.name}
                </Link>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}
