import { Panel } from "../../components/panel";
import { money } from "../../format";
import styles from "./job-page.module.css";
import { isOver, type Job } from "./use-live-job";

interface Mark {
  at: number;
  label: string;
  color: string;
}

/** What was spent, beside the forecast, the budget and the price on demand. */
export function CostPanel({ job }: { job: Job }) {
  const { cost } = job;
  const spent = Number(cost.spent);
  const forecast = Number(cost.forecast_total);
  const high = Number(cost.forecast_high);
  const budget = cost.budget === null ? null : Number(cost.budget);
  const over = isOver(job);
  const onDemand = Number(cost.on_demand_equivalent);
  const marks: Mark[] = over
    ? [{ at: onDemand, label: `on demand ${money(onDemand)}`, color: "ink" }]
    : [{ at: forecast, label: `forecast ${money(forecast)}`, color: "ink" }];
  const below: Mark[] = over
    ? []
    : [{ at: high, label: `9 in 10: ${money(high)}`, color: "muted" }];
  const scale = Math.max(spent, over ? onDemand : high, 0.000001) * 1.25;
  if (budget !== null && budget <= scale * 1.6) {
    below.push({ at: budget, label: `budget ${money(budget)}`, color: "bad" });
  }
  const end = Math.max(scale, ...below.map(({ at }) => at * 1.08));
  const percentOf = (value: number) => `${Math.min(100, (value / end) * 100)}%`;
  return (
    <Panel title="Cost" span={4}>
      <p className="row">
        <b className={`num ${styles.money}`}>{money(spent)}</b>
        <span className="muted">
          {over
            ? cost.final
              ? "in all"
              : "so far; machines are being deleted"
            : `spent of about ${money(forecast)}`}
        </span>
      </p>
      <div
        className={styles.meter}
        role="img"
        aria-label={`Spent ${money(spent)}, forecast ${money(forecast)}, 9 in 10 at most ${money(high)}, budget ${budget === null ? "none" : money(budget)}`}
      >
        {!over && (
          <i style={{ width: percentOf(forecast), background: "var(--saving)", opacity: 0.35 }} />
        )}
        <i style={{ width: percentOf(spent), background: "var(--training)" }} />
        <Marks marks={marks} row="above" percentOf={percentOf} end={end} />
        <Marks marks={below} row="below" percentOf={percentOf} end={end} />
      </div>
      <p className="muted">
        {savings(job)}
        {budget === null
          ? " No budget."
          : ` ${money(cost.budget_remaining)} of the budget of ${money(budget)} is left.`}
        {Number(cost.storage_a_month) > 0 && ` Storage: ${money(cost.storage_a_month)} a month.`}
      </p>
    </Panel>
  );
}

function savings({ cost }: Job): string {
  const saved = Number(cost.saved);
  const onDemand = `On demand: ${money(cost.on_demand_equivalent)} for the same hours.`;
  return saved > 0
    ? `${onDemand} Saved ${money(saved)} (${Math.round(cost.saved_percent)} %).`
    : onDemand;
}

interface MarksProps {
  marks: Mark[];
  row: "above" | "below";
  percentOf: (value: number) => string;
  end: number;
}

function Marks({ marks, row, percentOf, end }: MarksProps) {
  return marks.map(({ at, label, color }) => (
    <u
      key={label}
      data-row={row}
      data-side={at / end > 0.75 ? "left" : at / end < 0.25 ? "right" : "middle"}
      style={{ left: percentOf(at), "--c": `var(--${color})` } as React.CSSProperties}
    >
      <span className={styles.mark}>{label}</span>
    </u>
  ));
}
