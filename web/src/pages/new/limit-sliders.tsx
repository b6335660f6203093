import { duration, money } from "../../format";
import type { Limits, PlanOption } from "./plan";
import styles from "./plan.module.css";

interface LimitSlidersProps {
  options: readonly PlanOption[];
  limits: Limits;
  now: number;
  onLimits: (limits: Partial<Limits>) => void;
}

const STEPS = 200; // about; the last one is "no limit"

/** Deadline and budget, from nothing to twice what the options need. */
export function LimitSliders({ options, limits, now, onLimits }: LimitSlidersProps) {
  const longest = 2 * Math.max(60, ...options.map(({ seconds_needed }) => seconds_needed));
  const dearest = 2 * Math.max(0.05, ...options.map(({ budget_needed }) => Number(budget_needed)));
  const left = limits.deadline === null ? null : limits.deadline - now;
  return (
    <div className={styles.sliders}>
      <LimitSlider
        label="Deadline"
        value={left}
        most={longest}
        step={Math.ceil(longest / STEPS)}
        text={limits.deadline === null ? "none" : deadlineText(limits.deadline, now)}
        onValue={(seconds) => onLimits({ deadline: seconds === null ? null : now + seconds })}
      />
      <LimitSlider
        label="Budget"
        value={limits.budget}
        most={dearest}
        step={Math.ceil((dearest / STEPS) * 100) / 100}
        text={limits.budget === null ? "none" : money(limits.budget)}
        onValue={(budget) => onLimits({ budget })}
      />
    </div>
  );
}

function deadlineText(deadline: number, now: number): string {
  return deadline <= now ? "in the past" : `in ${duration(deadline - now)}`;
}

interface LimitSliderProps {
  label: string;
  value: number | null; // null: no limit
  most: number; // at the end of the slider
  step: number; // in whole seconds or cents, so that no rounding moves the slider
  text: string;
  onValue: (value: number | null) => void;
}

function LimitSlider({ label, value, most, step, text, onValue }: LimitSliderProps) {
  const last = Math.ceil(most / step);
  const at = value === null ? last : Math.min(Math.max(Math.round(value / step), 1), last - 1);
  return (
    <label className={styles.slider}>
      <span>
        <strong>{label}</strong> <span className="muted num">{text}</span>
      </span>
      <input
        type="range"
        min={1}
        max={last}
        value={at}
        aria-valuetext={text}
        aria-label={`${label} of the plot`}
        onChange={(event) => {
          const chosen = Number(event.target.value);
          onValue(chosen === last ? null : chosen * step);
        }}
      />
    </label>
  );
}
