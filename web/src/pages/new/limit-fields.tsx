/** Limits of cost, time and region. */

import { Field } from "../../components/field";
import { Panel } from "../../components/panel";
import { type Form, SelectField, TextField } from "./form";
import styles from "./new.module.css";

interface LimitFieldsProps {
  form: Form;
  hadDeadline: boolean; // the job that is repeated, and it has passed
}

export function LimitFields({ form, hadDeadline }: LimitFieldsProps) {
  const { draft } = form;
  return (
    <Panel title="Limits">
      <div className={styles.limits}>
        <TextField
          form={form}
          name="budget"
          label="Budget"
          placeholder="none"
          unit="USD"
          hint="Most that the job may cost, machines and storage."
          numeric
        />
        <SelectField
          form={form}
          name="onExhausted"
          label="When the budget is exhausted"
          hint={draft.budget === "" ? "Applies with a budget." : undefined}
          options={[
            ["pause", "Save and pause"],
            ["cancel", "Save and cancel"],
          ]}
        />
        <DeadlineField form={form} hadDeadline={hadDeadline} />
        <SelectField
          form={form}
          name="onRisk"
          label="When Spot may miss the deadline"
          hint={draft.deadline === null ? "Applies with a deadline." : undefined}
          options={[
            ["switch_to_on_demand", "Switch to on demand"],
            ["notify", "Notify, and stay on Spot"],
            ["cancel", "Cancel"],
          ]}
        />
        <TextField
          form={form}
          name="regions"
          label="Allowed regions"
          placeholder="all"
          hint="Names of Azure regions, for example: swedencentral, eastus."
        />
        <SelectField
          form={form}
          name="engine"
          label="Engine"
          options={[
            ["", "Whichever is better"],
            ["scale_set", "Scale sets"],
            ["azureml", "Azure Machine Learning"],
          ]}
        />
        <SelectField
          form={form}
          name="priority"
          label="Priority among your jobs"
          options={[
            ["high", "High"],
            ["normal", "Normal"],
            ["low", "Low"],
          ]}
        />
      </div>
    </Panel>
  );
}

function DeadlineField({ form: { draft, errors, change }, hadDeadline }: LimitFieldsProps) {
  const hint =
    hadDeadline && draft.deadline === null ? "The job's has passed." : "Your local time.";
  return (
    <Field label="Deadline" hint={hint} error={errors.deadline}>
      <input
        type="datetime-local"
        value={draft.deadline === null ? "" : localTime(draft.deadline)}
        onChange={(event) => change({ deadline: unixTime(event.target.value) })}
      />
    </Field>
  );
}

/** Unix seconds as `2026-11-26T18:00`, in the time zone of the browser. */
function localTime(at: number): string {
  const date = new Date(at * 1000);
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 16);
}

function unixTime(text: string): number | null {
  const at = new Date(text).getTime();
  return Number.isNaN(at) ? null : Math.floor(at / 1000);
}
