import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useRef } from "react";
import { api, body } from "../../api/client";
import { modelsQuery } from "../../api/queries";
import { Button, buttonClass } from "../../components/button";
import { Panel } from "../../components/panel";
import { ErrorBox } from "../../components/states";
import styles from "./jobs-page.module.css";
import { sampleFile } from "./sample-file";

const BUDGET = "5";
const STEPS = [
  ["Bring rows", "A JSONL file of chats, or of preferred answers. Each problem names its line."],
  [
    "See cost and time first",
    "The plan shows every place, its price and its odds before anything runs.",
  ],
  ["Let it train", "Evicted Spot machines are replaced; training continues from the last step."],
  ["Take the model", "Download it, or train from it. Every checkpoint is kept as you choose."],
] as const;

/** What a project without jobs shows: what this is, and a sample job in one click. */
export function FirstRun() {
  const models = useQuery(modelsQuery);
  const base = models.data?.data.filter(({ owned_by }) => owned_by === "base") ?? [];
  const model = (base.find(({ id }) => /tiny|135m|0\.5b|1b/i.test(id)) ?? base[0])?.id;
  const navigate = useNavigate();
  const sending = useRef(false); // at once, where `isPending` waits for the next rendering
  const sample = useMutation({
    mutationFn: (on: string) => startSample(on),
    onSuccess: (job) => navigate({ to: "/jobs/$jobId", params: { jobId: job } }),
    onError: () => {
      sending.current = false;
    },
  });

  function start() {
    if (model === undefined || sending.current) return;
    sending.current = true;
    sample.mutate(model);
  }

  return (
    <>
      <h1>Welcome to Rekindle</h1>
      <div className="grid">
        <Panel>
          <p>Train a language model on Azure Spot machines, at a fraction of the list price.</p>
        </Panel>
        <Panel title="How it works">
          <ol className={styles.steps}>
            {STEPS.map(([title, text]) => (
              <li key={title}>
                <h3>{title}</h3>
                <span className="muted">{text}</span>
              </li>
            ))}
          </ol>
        </Panel>
        <Panel title="Begin">
          <p className="row">
            <Button
              kind="primary"
              disabled={model === undefined || sample.isPending}
              onClick={start}
            >
              {sample.isPending ? "Starting" : "Start a sample job"}
            </Button>
            <Link to="/new" className={buttonClass()}>
              Use your own file
            </Link>
          </p>
          <p className="muted small">
            {model === undefined
              ? "No base model is staged yet. An operator stages one: python -m rekindle.stage."
              : `The sample trains LoRA adapters of ${model} on 24 short chats and stops at ${BUDGET} USD.`}
          </p>
          {sample.error !== null && <ErrorBox error={sample.error} />}
          {models.error !== null && <ErrorBox error={models.error} />}
        </Panel>
      </div>
    </>
  );
}

/** Upload the sample rows and create the job; returns its id. */
async function startSample(model: string): Promise<string> {
  const form = new FormData();
  form.set("purpose", "fine-tune");
  form.set("file", sampleFile());
  const file = await body(api.POST("/v1/files", { body: {} as never, bodySerializer: () => form }));
  const job = await body(
    api.POST("/v1/fine_tuning/jobs", {
      params: { header: { "idempotency-key": `sample-${file.id}` } },
      body: {
        model,
        training_file: file.id,
        suffix: "sample",
        training: { adapter: { type: "lora", r: 8 }, max_seq_len: 128 },
        method: { type: "supervised", supervised: { hyperparameters: { n_epochs: 10 } } },
        infrastructure: { budget: { amount: BUDGET } },
      } as never,
    }),
  );
  return (job as { id: string }).id;
}
