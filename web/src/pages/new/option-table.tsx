import { useState } from "react";
import { Button } from "../../components/button";
import { duration, money } from "../../format";
import { capacityOf, keeps, machinesOf, type PlanOption, type Verdict } from "./plan";
import styles from "./plan.module.css";
import { keyOf, type PlottedOption } from "./plan-plot";

const FIRST = 6;

/** The options of the plot as figures. */
export function OptionTable({ options }: { options: readonly PlottedOption[] }) {
  const [all, setAll] = useState(false);
  const shown = all ? options : options.slice(0, FIRST);
  return (
    <div className={styles.options}>
      <table className={styles.table}>
        <caption className="visually-hidden">Options of the plan</caption>
        <thead>
          <tr>
            <th scope="col">Machines</th>
            <th scope="col" className="right">
              Cost
            </th>
            <th scope="col" className="right">
              Time
            </th>
            <th scope="col">Limits</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ option, verdict, isChosen }) => (
            <tr key={keyOf(option)} className={keeps(verdict) ? undefined : styles.out}>
              <td>
                {machinesOf(option)} {isChosen && <strong className={styles.tag}>Chosen</strong>}
                <div className="small muted">
                  {capacityOf(option)}, {option.region}, ZeRO {option.zero_stage}
                  {option.engine === "azureml" && ", Azure ML"}
                </div>
              </td>
              <td className="num right">
                {money(option.cost_p50)}
                <div className="small muted">to {money(option.cost_p90)}</div>
              </td>
              <td className="num right">
                {duration(option.duration_p50)}
                <div className="small muted">to {duration(option.duration_p90)}</div>
              </td>
              <td>
                {limitsText(verdict)}
                <div className="small muted">{needsText(option, verdict)}</div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {options.length > FIRST && (
        <Button onClick={() => setAll(!all)} aria-expanded={all}>
          {all ? "Show fewer" : `Show all ${options.length} options`}
        </Button>
      )}
    </div>
  );
}

function limitsText(verdict: Verdict): string {
  if (keeps(verdict)) return "Kept";
  if (!verdict.budget && !verdict.deadline) return "Misses both";
  return verdict.budget ? "Misses the deadline" : "Over the budget";
}

/** What the option needs of each limit that it misses. */
function needsText({ budget_needed, seconds_needed }: PlanOption, verdict: Verdict): string {
  const needs = [
    ...(verdict.budget ? [] : [money(budget_needed)]),
    ...(verdict.deadline ? [] : [duration(seconds_needed)]),
  ];
  return needs.length === 0 ? "" : `needs ${needs.join(" and ")}`;
}
