import { absolute, duration, money } from "../../format";
import type { Limits, PlanOption } from "./plan";
import styles from "./plan.module.css";

interface LimitSlidersProps {
  options: readonly PlanOption[];
  limits: Limits;
  now: number;
  onLimits: (limits: Partial<Limits>) => void;
}

const STEPS = 200; // the last one is "no limit"
const RESERVE_HOURS = 0.1; // about what a budget keeps to save and to delete the machines

/** Deadline and budget, from nothing to twice what the options need. */
export function LimitSliders({ options, limits, now, onLimits }: LimitSlidersProps) {
  const longest = 2 * Math.max(60, ...options.map((option) => option.duration_p90));
  const dearest = 2 * Math.max(0.01, ...options.map(costWithReserve));
  const left = limits.deadline === null ? null : limits.deadline - now;
  return (
    <div className={styles.sliders}>
      <LimitSlider
        label="Deadline"
        share={left === null ? null : left / longest}
        text={
          left === null || limits.deadline === null ? "none" : deadlineText(limits.deadline, left)
        }
        onShare={(share) =>
          onLimits({ deadline: share === null ? null : Math.ceil(now + share * longest) })
        }
      />
      <LimitSlider
        label="Budget"
        share={limits.budget === null ? null : limits.budget / dearest}
        text={limits.budget === null ? "none" : money(limits.budget)}
        onShare={(share) =>
          onLimits({ budget: share === null ? null : Math.ceil(share * dearest * 100) / 100 })
        }
      />
    </div>
  );
}

function costWithReserve(option: PlanOption): number {
  return Number(option.cost_p90) + RESERVE_HOURS * Number(option.hourly) * option.nodes;
}

function deadlineText(deadline: number, left: number): string {
  return left <= 0 ? "in the past" : `in ${duration(left)}, ${absolute(deadline)}`;
}

interface LimitSliderProps {
  label: string;
  share: number | null; // of the whole slider; null: no limit
  text: string;
  onShare: (share: number | null) => void;
}

function LimitSlider({ label, share, text, onShare }: LimitSliderProps) {
  const at = share === null ? STEPS : Math.min(Math.max(Math.round(share * STEPS), 1), STEPS - 1);
  return (
    <label className={styles.slider}>
      <span>
        <strong>{label}</strong> <span className="muted num">{text}</span>
      </span>
      <input
        type="range"
        min={1}
        max={STEPS}
        value={at}
        aria-valuetext={text}
        aria-label={`${label} of the plot`}
        onChange={(event) => {
          const chosen = Number(event.target.value);
          onShare(chosen === STEPS ? null : chosen / STEPS);
        }}
      />
    </label>
  );
}
