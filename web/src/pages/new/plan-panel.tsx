/** What the job will cost and how long it takes, and what each limit leaves to choose from. */

import { Facts, Panel } from "../../components/panel";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { useNow } from "../../components/time";
import { duration, money, percent } from "../../format";
import { LimitSliders } from "./limit-sliders";
import { MemoryBar } from "./memory-bar";
import { OptionTable } from "./option-table";
import {
  type Limits,
  optionsOf,
  type PlanState,
  type StoredPlan,
  type Verdict,
  verdictOf,
} from "./plan";
import styles from "./plan.module.css";
import { PlanPlot } from "./plan-plot";

interface PlanPanelProps {
  state: PlanState;
  limits: Limits;
  refused: Verdict | null;
  missing: string | null; // what the form still needs
  onLimits: (limits: Partial<Limits>) => void;
}

export function PlanPanel({ state, limits, refused, missing, onLimits }: PlanPanelProps) {
  const { plan, isBusy, error, retry } = state;
  return (
    <Panel title="Plan" aside={<Status state={state} />}>
      {error !== null && (
        <ErrorBox
          error={error}
          retry={error.status >= 500 || error.status === 0 ? retry : undefined}
        />
      )}
      {plan === null && error === null && missing !== null && !isBusy && (
        <Empty title="No plan yet">
          <p>{missing}</p>
        </Empty>
      )}
      {plan === null && error === null && (isBusy || missing === null) && (
        <Loading lines={10} label="Planning" />
      )}
      {plan !== null && (
        <PlanView plan={plan} state={state} limits={limits} refused={refused} onLimits={onLimits} />
      )}
    </Panel>
  );
}

function Status({ state }: { state: PlanState }) {
  const text = state.isBusy
    ? "Planning"
    : state.error !== null
      ? "No plan keeps these limits or options"
      : state.isFresh
        ? "Up to date"
        : "";
  return (
    <span className="small muted" role="status">
      {text}
    </span>
  );
}

type PlanViewProps = Omit<PlanPanelProps, "missing"> & { plan: StoredPlan };

function PlanView({ plan, state, limits, refused, onLimits }: PlanViewProps) {
  const now = useNow();
  const options = optionsOf(plan);
  const judging = { limits, refused, now };
  const shown = options.map((option, at) => ({
    option,
    verdict: verdictOf(option, judging),
    isChosen: at === 0 && state.error === null,
  }));
  return (
    <div className={styles.plan}>
      <div className={styles.choice}>
        <PlanPlot
          options={shown}
          budget={limits.budget}
          left={limits.deadline === null ? null : limits.deadline - now}
        />
        <LimitSliders options={options} limits={limits} now={now} onLimits={onLimits} />
      </div>
      <div className={styles.outcome}>
        <Outcome plan={plan} hasDeadline={limits.deadline !== null} />
        <Notes plan={plan} />
      </div>
      <OptionTable options={shown} />
    </div>
  );
}

interface OutcomeProps {
  plan: StoredPlan;
  hasDeadline: boolean;
}

function Outcome({ plan, hasDeadline }: OutcomeProps) {
  const { chosen } = plan;
  const odds = chosen.meets_deadline;
  const facts = [
    { value: money(chosen.cost_p50), label: `cost; nine in ten at most ${money(chosen.cost_p90)}` },
    {
      value: duration(chosen.duration_p50),
      label: `until the model is ready; nine in ten within ${duration(chosen.duration_p90)}`,
    },
    { value: money(chosen.on_demand_cost), label: "the same machines on demand" },
    hasDeadline && odds != null
      ? { value: odds > 0.99 ? "> 99 %" : percent(odds), label: "odds of the deadline" }
      : { value: evictions(chosen.expected_evictions), label: "expected evictions" },
  ];
  return (
    <div>
      <Facts facts={facts} />
      <p className={styles.why}>{plan.plan.why}</p>
      <MemoryBar memory={chosen.memory} gpuGib={chosen.gpu_memory_gib} />
    </div>
  );
}

function evictions(expected: number): string {
  return expected < 0.01 ? "< 0.01" : expected.toFixed(expected < 1 ? 2 : 1);
}

function Notes({ plan }: { plan: StoredPlan }) {
  const recipe = plan.plan.recipe as { warnings?: unknown };
  const more = Array.isArray(recipe.warnings) ? recipe.warnings.map(String) : [];
  const warnings = [...new Set([...plan.plan.warnings, ...more])];
  return (
    <>
      {warnings.length > 0 && (
        <ul className={styles.notes} aria-label="Warnings of the plan">
          {warnings.map((warning) => (
            <li key={warning}>
              <span className="warn">Note:</span> {warning}
            </li>
          ))}
        </ul>
      )}
      {plan.suggestions.length > 0 && (
        <ul className={styles.notes} aria-label="Suggestions">
          {plan.suggestions.map((suggestion) => (
            <li key={suggestion.change}>
              <span className="good">{suggestion.aim === "cheaper" ? "Cheaper" : "Faster"}:</span>{" "}
              {suggestion.change}{" "}
              <span className="muted num">
                ({money(suggestion.cost_p50)}, {duration(suggestion.duration_p50)})
              </span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
