import { useState } from "react";
import { money } from "../../format";
import styles from "./costs-page.module.css";
import { type Day, dayName } from "./days";

const LINES = 4; // of the grid
const NAMES = 6; // below the axis

/** Two bars a day, one before the other: spent, and the price on demand for the same hours. */
export function DaysChart({ days }: { days: Day[] }) {
  const [pointed, setPointed] = useState<Day | null>(null);
  const highest = Math.max(...days.map(({ spent, onDemand }) => Math.max(spent, onDemand)));
  const step = niceStep(highest / LINES);
  const top = Math.ceil(highest / step) * step;
  const ticks = Array.from({ length: Math.round(top / step) + 1 }, (_, at) => at * step);
  const total = (of: keyof Day) => days.reduce((sum, day) => sum + day[of], 0);
  const every = Math.ceil(days.length / NAMES);
  const shown = pointed ?? days.findLast(({ spent }) => spent > 0);
  return (
    <figure
      className={styles.chart}
      aria-label={`Spent ${money(total("spent"))} in ${days.length} days, on demand ${money(total("onDemand"))}`}
    >
      <p className={`small muted num ${styles.pointed}`}>
        {shown !== undefined &&
          `${dayName(shown.start)}: spent ${money(shown.spent)}, on demand ${money(shown.onDemand)}, saved ${money(shown.saved)}`}
      </p>
      <div className={styles.plot} aria-hidden="true">
        {ticks.map((tick) => (
          <div key={tick} className={styles.tick} style={{ bottom: `${(tick / top) * 100}%` }}>
            <span>{money(tick)}</span>
          </div>
        ))}
        <div className={styles.bars} onPointerLeave={() => setPointed(null)}>
          {days.map((day) => (
            <div
              key={day.start}
              className={styles.day}
              data-pointed={day === shown}
              onPointerEnter={() => setPointed(day)}
            >
              <i data-kind="demand" style={{ height: `${(day.onDemand / top) * 100}%` }} />
              <i data-kind="spent" style={{ height: `${(day.spent / top) * 100}%` }} />
            </div>
          ))}
        </div>
      </div>
      <div className={styles.names} aria-hidden="true">
        {days.map((day, at) => (
          <span key={day.start}>
            {(days.length - 1 - at) % every === 0 && (
              <b data-minor={(days.length - 1 - at) % (2 * every) !== 0}>{dayName(day.start)}</b>
            )}
          </span>
        ))}
      </div>
    </figure>
  );
}

/** The next of 1, 2, 5, 10, 20, ... that is not below `rough`. */
export function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((one) => one * power).find((step) => step >= rough) ?? power;
}
