import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Schemas } from "../../api/client";
import { attemptsQuery, metricsQuery } from "../../api/queries";
import { type Band, Chart, type Line } from "../../components/chart";
import { Panel } from "../../components/panel";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { compact, decimal, integer } from "../../format";
import styles from "./job-page.module.css";
import type { Attempt, Job } from "./use-live-job";

type Row = Schemas["MetricRow"];
type Of = (row: Row) => number | null;

interface Plot {
  title: string;
  lines: { label: string; color: string; of: Of; points?: boolean }[];
  format?: (value: number) => string;
}

const PLOTS: readonly Plot[] = [
  {
    title: "Loss",
    lines: [
      { label: "Training", color: "series-1", of: (row) => row.loss },
      { label: "Validation", color: "series-2", of: (row) => row.valid_loss, points: true },
    ],
  },
  { title: "Reward", lines: [{ label: "Reward", color: "series-3", of: (row) => row.reward }] },
  { title: "Margin", lines: [{ label: "Margin", color: "series-3", of: (row) => row.margin }] },
  {
    title: "KL from the base model (nats)",
    lines: [{ label: "KL", color: "series-4", of: (row) => row.kl }],
  },
  {
    title: "Learning rate",
    lines: [{ label: "Rate", color: "series-4", of: (row) => row.learning_rate }],
  },
  {
    title: "Tokens per second",
    lines: [
      {
        label: "Tokens/s",
        color: "series-3",
        of: (row) => (row.tokens === null || !row.seconds ? null : row.tokens / row.seconds),
      },
    ],
    format: compact,
  },
  {
    title: "Gradient norm",
    lines: [{ label: "Norm", color: "series-6", of: (row) => row.grad_norm }],
  },
];

/** What was measured by step, with the evictions, on a shared axis. */
export function CurvesPanel({ job }: { job: Job }) {
  const metrics = useQuery(metricsQuery(job.id));
  const attempts = useQuery(attemptsQuery(job.id));
  const rows = metrics.data?.data;
  const plots = useMemo(
    () => (rows === undefined ? [] : PLOTS.map((plot) => drawn(plot, rows))),
    [rows],
  );
  const bands = evictions(attempts.data?.data ?? []);

  if (rows === undefined) {
    return (
      <Panel title="Curves" span={8}>
        {metrics.error === null ? (
          <Loading lines={10} />
        ) : (
          <ErrorBox error={metrics.error} retry={() => void metrics.refetch()} />
        )}
      </Panel>
    );
  }
  const shown = plots.filter(({ lines }) => lines.length > 0);
  return (
    <Panel
      title="Curves"
      span={8}
      aside={<span className="small muted">Drag to zoom, double-click for all</span>}
    >
      {shown.length === 0 ? (
        <Empty title="Nothing was measured yet">
          <p>Curves appear with the first training steps.</p>
        </Empty>
      ) : (
        <div className={styles.charts}>
          {shown.map(({ title, lines, format }, at) => (
            <div key={title} className={at === 0 ? styles.wide : undefined}>
              <h3 className={styles.chartTitle}>{title}</h3>
              <Chart
                label={`${title} by step`}
                x={rows.map(({ step }) => step)}
                lines={lines}
                bands={bands.map((band) => (at === 0 ? band : { ...band, label: "" }))}
                height={at === 0 ? 240 : 150}
                sync={`job-${job.id}`}
                format={format ?? decimal}
              />
            </div>
          ))}
        </div>
      )}
    </Panel>
  );
}

function drawn({ title, lines, format }: Plot, rows: Row[]) {
  const filled = lines
    .map(({ of, ...line }): Line => ({ ...line, values: rows.map(of) }))
    .filter(({ values }) => values.some((value) => value !== null));
  return { title, format, lines: filled };
}

/** Steps that were repeated, or a mark where an eviction cost none. */
export function evictions(attempts: Attempt[]): Band[] {
  return attempts.flatMap((attempt) => {
    if (attempt.outcome !== "evicted" || attempt.last_step === null) return [];
    const lost = attempt.lost_steps;
    return {
      from: attempt.last_step - lost,
      to: attempt.last_step,
      color: "lost",
      label: lost === 0 ? "evicted" : `evicted, ${integer(lost)} repeated`,
    };
  });
}
