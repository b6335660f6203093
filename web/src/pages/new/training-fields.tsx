/** Base model, method, and the options of the training that users change. */

import { useQuery } from "@tanstack/react-query";
import { modelsQuery } from "../../api/queries";
import { Panel } from "../../components/panel";
import { ErrorBox } from "../../components/states";
import { METHODS, type Method } from "./draft";
import { type Form, JsonField, SelectField, TextField } from "./form";
import styles from "./new.module.css";

const USUAL_GRADER = JSON.stringify(
  {
    type: "string_check",
    name: "exact",
    input: "{{sample.output_text}}",
    reference: "{{item.answer}}",
    operation: "eq",
  },
  null,
  2,
);

export function TrainingFields({ form }: { form: Form }) {
  const { draft, change } = form;
  return (
    <Panel title="Model and method">
      <div className={styles.fields}>
        <ModelField form={form} />
        <SelectField
          form={form}
          name="method"
          label="Method"
          options={Object.entries(METHODS).map(([name, { label }]) => [name, label] as const)}
          onChoose={(method) => change(chooseMethod(method as Method, draft.grader))}
        />
        {draft.method === "reinforcement" && (
          <JsonField
            form={form}
            name="grader"
            label="Grader"
            hint="JSON in OpenAI's form: string_check, text_similarity, exact_answer, reward_model, python or multi."
            rows={7}
          />
        )}
        <div className={styles.columns}>
          <TextField form={form} name="epochs" label="Epochs" placeholder="auto" numeric />
          <TextField form={form} name="batchSize" label="Batch size" placeholder="auto" numeric />
          <TextField
            form={form}
            name="learningRate"
            label="Learning rate"
            placeholder="auto"
            numeric
          />
          <TextField
            form={form}
            name="maxSeqLen"
            label="Sequence length"
            placeholder="auto"
            unit="tokens"
            numeric
          />
          <SelectField
            form={form}
            name="adapter"
            label="Adapter"
            options={[
              ["lora", "LoRA"],
              ["qlora", "QLoRA: base in 4 bits"],
              ["full", "All parameters"],
            ]}
          />
          {draft.adapter !== "full" && (
            <TextField form={form} name="rank" label="LoRA rank" placeholder="16" numeric />
          )}
          {METHODS[draft.method].beta && (
            <TextField form={form} name="beta" label="Beta" placeholder="0.1" numeric />
          )}
          <TextField form={form} name="suffix" label="Suffix of the name" placeholder="none" />
          <TextField form={form} name="seed" label="Seed" placeholder="random" numeric />
        </div>
        <AdvancedOptions form={form} />
      </div>
    </Panel>
  );
}

function chooseMethod(method: Method, grader: string) {
  const needsGrader = method === "reinforcement" && grader.trim() === "";
  return needsGrader ? { method, grader: USUAL_GRADER } : { method };
}

function ModelField({ form }: { form: Form }) {
  const models = useQuery(modelsQuery);
  const listed = models.data?.data ?? [];
  const bases = listed.filter((model) => model.owned_by === "base");
  const made = listed.filter((model) => model.owned_by !== "base");
  const isListed = listed.some((model) => model.id === form.draft.model);
  const choices: [string, string][] = [
    ["", models.isPending ? "Loading the models" : "Choose a base model"],
    ...bases.map((model): [string, string] => [model.id, model.id]),
    ...made.map((model): [string, string] => [
      model.id,
      model.step == null ? model.id : `${model.id} (step ${model.step})`,
    ]),
  ];
  if (!isListed && form.draft.model !== "") choices.push([form.draft.model, form.draft.model]);
  return (
    <>
      <SelectField form={form} name="model" label="Base model" options={choices} />
      {models.error !== null && (
        <ErrorBox error={models.error} retry={() => void models.refetch()} />
      )}
    </>
  );
}

function AdvancedOptions({ form }: { form: Form }) {
  const isUsed = form.draft.advanced !== "" || form.errors.advanced !== undefined;
  return (
    <details className={styles.details} open={isUsed || undefined}>
      <summary>Advanced options</summary>
      <JsonField
        form={form}
        name="advanced"
        label="More members of the request"
        hint='JSON that is laid over the request, such as {"training": {"packing": true, "eval_steps": 50}}. All members are in the API reference.'
        rows={6}
      />
    </details>
  );
}
