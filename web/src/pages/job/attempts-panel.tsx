import { useQuery } from "@tanstack/react-query";
import { Fragment, useState } from "react";
import { attemptsQuery } from "../../api/queries";
import { Panel } from "../../components/panel";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { Tag } from "../../components/tag";
import { useNow } from "../../components/time";
import { absolute, duration, integer, money, timeOfDay, words } from "../../format";
import styles from "./job-page.module.css";
import type { Attempt, Job } from "./use-live-job";

type Phase = Attempt["timeline"][number];

const KINDS = {
  requested: ["create", "allocate"],
  booting: ["boot", "pull_image", "start_supervisor", "join", "wait_for_nodes"],
  loading: [
    "prefetch",
    "fetch_inputs",
    "fetch_checkpoint",
    "start_trainer",
    "load",
    "first_validation",
    "first_step",
  ],
  training: ["train"],
  saving: ["save", "export"],
  deleted: ["stop", "delete"],
} as const;
type Kind = keyof typeof KINDS | "lost";

const LEGEND: readonly [Kind, string][] = [
  ["requested", "waiting for machines"],
  ["booting", "booting"],
  ["loading", "loading"],
  ["training", "training"],
  ["lost", "repeated work"],
  ["saving", "saving"],
  ["deleted", "stopping, deleting"],
];
const WIDEST_LABEL = 50; // percent of the axis that the label of an eviction may take
const SHOWN = 12; // newest attempts; the rest on demand

/** Every attempt on one time axis, with what its time went into. */
export function AttemptsPanel({ job }: { job: Job }) {
  const { data, error, refetch } = useQuery(attemptsQuery(job.id));
  const [open, setOpen] = useState<string | null>(null);
  const [all, setAll] = useState(false);
  const now = useNow();

  if (data === undefined) {
    return (
      <Panel title="Attempts">
        {error === null ? (
          <Loading lines={3} />
        ) : (
          <ErrorBox error={error} retry={() => void refetch()} />
        )}
      </Panel>
    );
  }
  const attempts = data.data.toReversed();
  const shown = all ? attempts : attempts.slice(0, SHOWN);
  const from = Math.min(job.created_at, ...shown.map(startOf));
  const to = Math.max(from + 60, ...shown.map((attempt) => endOf(attempt, now)));
  const axis = { from, to };
  return (
    <Panel title="Attempts" aside={<Count job={job} />}>
      {attempts.length === 0 ? (
        <Empty title="No machines were requested yet" />
      ) : (
        <>
          <div className={styles.attempts}>
            {shown.map((attempt) => (
              <Fragment key={attempt.id}>
                <span className="muted num">{attempt.number}</span>
                <Track
                  attempt={attempt}
                  axis={axis}
                  now={now}
                  open={open === attempt.id}
                  toggle={() => setOpen(open === attempt.id ? null : attempt.id)}
                />
                <span className={`right num ${styles.price}`}>{money(attempt.cost)}</span>
                {open === attempt.id && <Detail attempt={attempt} />}
              </Fragment>
            ))}
            <span />
            <Hours axis={axis} now={now} />
            <span className={styles.price} />
          </div>
          <div className={styles.legend}>
            {LEGEND.map(([kind, text]) => (
              <span key={kind} style={{ "--c": `var(--${kind})` } as React.CSSProperties}>
                {text}
              </span>
            ))}
          </div>
          {attempts.length > SHOWN && (
            <button type="button" className="linklike" onClick={() => setAll(!all)}>
              {all ? "Show the newest only" : `Show all ${attempts.length} attempts`}
            </button>
          )}
        </>
      )}
    </Panel>
  );
}

function Count({ job }: { job: Job }) {
  const { count, evictions } = job.attempts;
  if (count === 0) return null;
  const evicted = evictions === 1 ? "1 eviction" : `${evictions} evictions`;
  const lost = `${integer(job.progress.lost_steps)} steps repeated`;
  return (
    <span className="small muted">{evictions === 0 ? "no evictions" : `${evicted}, ${lost}`}</span>
  );
}

interface Axis {
  from: number;
  to: number;
}

interface TrackProps {
  attempt: Attempt;
  axis: Axis;
  now: number;
  open: boolean;
  toggle: () => void;
}

function Track({ attempt, axis, now, open, toggle }: TrackProps) {
  const at = (time: number) => ((time - axis.from) / (axis.to - axis.from)) * 100;
  const eviction = evictionOf(attempt);
  return (
    <button type="button" className={styles.track} aria-expanded={open} onClick={toggle}>
      <span className="visually-hidden">{`Attempt ${attempt.number}: ${summary(attempt)}. `}</span>
      {segments(attempt, now).map(({ kind, title, from, to }) => (
        <i
          key={`${title}-${from}`}
          title={`${title}: ${duration(to - from)}`}
          style={{
            left: `${at(from)}%`,
            width: `${at(to) - at(from)}%`,
            background: `var(--${kind})`,
          }}
        />
      ))}
      {eviction !== null && (
        <>
          <u style={{ left: `${at(eviction.at)}%` }} title={attempt.reason ?? ""} />
          <span
            className={styles.eviction}
            style={
              at(eviction.at) <= WIDEST_LABEL
                ? { left: `${at(eviction.at)}%` }
                : { right: `${100 - Math.max(at(startOf(attempt)), WIDEST_LABEL)}%` }
            }
          >
            {timeOfDay(eviction.at, now)} {eviction.how}
          </span>
        </>
      )}
    </button>
  );
}

function Hours({ axis, now }: { axis: Axis; now: number }) {
  const ticks = [0.04, 0.27, 0.5, 0.73, 0.96].map(
    (share) => axis.from + share * (axis.to - axis.from),
  );
  return (
    <div className={styles.hours} aria-hidden="true">
      {ticks.map((tick, at) => (
        <span key={tick} className={styles.hour} style={{ left: `${4 + at * 23}%` }}>
          {timeOfDay(tick, now)}
        </span>
      ))}
    </div>
  );
}

function Detail({ attempt }: { attempt: Attempt }) {
  return (
    <div className={styles.detail}>
      <p className="row">
        <Tag state={attempt.outcome ?? attempt.state} />
        <span>{summary(attempt)}.</span>
        <span className="muted num">
          {money(attempt.cost)}, {Number(attempt.machine_hours).toFixed(2)} machine hours
        </span>
      </p>
      {attempt.reason && <p className="small">{attempt.reason}</p>}
      <div className={styles.phases}>
        {attempt.timeline.map((phase) => (
          <Fragment key={`${phase.name}-${phase.started_at}`}>
            <i style={{ background: `var(--${kindOf(phase)})` }} />
            <span title={absolute(phase.started_at)}>{phase.title}</span>
            <span className="num right">
              {phase.ended_at === null ? "now" : duration(phase.seconds)}
            </span>
          </Fragment>
        ))}
      </div>
    </div>
  );
}

function summary(attempt: Attempt): string {
  const capacity = attempt.capacity === "spot" ? "Spot" : "on demand";
  const machines = attempt.nodes === 1 ? "1 machine" : `${attempt.nodes} machines`;
  const engine = attempt.engine === "azureml" ? ", Azure ML" : "";
  const steps =
    attempt.from_step === null || attempt.last_step === null
      ? ""
      : `, steps ${integer(attempt.from_step)} to ${integer(attempt.last_step)}`;
  return `${machines} (${attempt.sku}, ${capacity}${engine}) in ${attempt.region}${steps}`;
}

function kindOf(phase: Phase): Kind {
  const name = phase.name.startsWith("load") ? "load" : phase.name;
  const found = Object.entries(KINDS).find(([, names]) =>
    (names as readonly string[]).includes(name),
  );
  return (found?.[0] as Kind | undefined) ?? "loading";
}

function startOf(attempt: Attempt): number {
  return Math.min(attempt.created_at, ...attempt.timeline.map(({ started_at }) => started_at));
}

function endOf(attempt: Attempt, now: number): number {
  return Math.max(
    ...attempt.timeline.map((phase) => phase.ended_at ?? now),
    attempt.ended_at ?? now,
  );
}

interface Segment {
  kind: Kind;
  title: string;
  from: number;
  to: number;
}

/** The phases as coloured stretches; the end of training that later attempts repeat is "lost". */
export function segments(attempt: Attempt, now: number): Segment[] {
  const drawn = attempt.timeline.map((phase) => ({
    kind: kindOf(phase),
    title: phase.title,
    from: phase.started_at,
    to: phase.ended_at ?? now,
  }));
  const last = drawn.findLast(({ kind }) => kind === "training");
  if (last === undefined || attempt.lost_steps === 0 || attempt.steps === 0) return drawn;
  const share = Math.min(1, attempt.lost_steps / attempt.steps);
  const title = `${integer(attempt.lost_steps)} steps that were repeated`;
  return [
    ...drawn,
    { ...last, kind: "lost", title, from: last.to - share * (last.to - last.from) },
  ];
}

/** When the attempt was evicted, and how; null where it was not. */
export function evictionOf(attempt: Attempt): { at: number; how: string } | null {
  if (attempt.outcome !== "evicted") return null;
  const deleting = attempt.timeline.find(({ name }) => name === "delete");
  const worked = attempt.timeline.findLast(({ name }) => name === "save" || name === "train");
  const at = worked?.ended_at ?? deleting?.started_at ?? attempt.ended_at;
  if (at === null || at === undefined) return null;
  const { noticed, unnoticed } = attempt.evicted;
  return {
    at,
    how: unnoticed > 0 && noticed === 0 ? "evicted without notice" : words("evicted").toLowerCase(),
  };
}
