import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { jobQuery } from "../../api/queries";
import { Button } from "../../components/button";
import { Panel } from "../../components/panel";
import { ErrorBox } from "../../components/states";
import { methodFor } from "./draft";
import { FilePicker, fileQuery } from "./file-picker";
import { LimitFields } from "./limit-fields";
import styles from "./new.module.css";
import { usePlan } from "./plan";
import { PlanPanel } from "./plan-panel";
import { Preview } from "./preview";
import { draftOf } from "./repeat";
import { SubmitBar } from "./submit-bar";
import { TrainingFields } from "./training-fields";
import { type NewJob, useNewJob } from "./use-new-job";

const route = getRouteApi("/new");

export function NewJobPage() {
  const { from, model } = route.useSearch();
  const form = useNewJob();
  const source = useQuery({ ...jobQuery(from ?? ""), enabled: from !== undefined });
  const filled = useRef<string | null>(null);
  const deadline = source.data?.infrastructure.deadline ?? null;
  const origin = source.error === null ? (from ?? form.draft.from) : null;
  const hadDeadline = deadline !== null && deadline * 1000 < Date.now();

  useEffect(() => {
    if (source.data === undefined || filled.current === from) return;
    filled.current = source.data.id;
    if (form.draft.from !== source.data.id) {
      form.replace(draftOf(source.data, Date.now() / 1000));
    }
  }, [source.data, from, form]);

  const asked = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (model === undefined || asked.current === model) return;
    asked.current = model; // once: the user may choose another one
    form.change({ model });
  }, [model, form]);

  return (
    <>
      <header className="row">
        <h1>New job</h1>
        <span className="grow" />
        <StartOver form={form} />
      </header>
      {origin !== null && (
        <p className={`muted ${styles.from}`}>
          Filled from{" "}
          <Link to="/jobs/$jobId" params={{ jobId: origin }}>
            {origin}
          </Link>
        </p>
      )}
      {source.error !== null && (
        <div className={styles.from}>
          <ErrorBox error={source.error} retry={() => void source.refetch()} />
        </div>
      )}
      <NewJobForm form={form} hadDeadline={hadDeadline} />
    </>
  );
}

function StartOver({ form }: { form: NewJob }) {
  const navigate = useNavigate();
  return (
    <Button
      disabled={form.isEmpty}
      onClick={() => {
        form.replace(null);
        void navigate({ to: "/new", search: {}, replace: true });
      }}
    >
      Start over
    </Button>
  );
}

function NewJobForm({ form, hadDeadline }: { form: NewJob; hadDeadline: boolean }) {
  const { draft, change } = form;
  const navigate = useNavigate();
  const element = useRef<HTMLFormElement>(null);
  const [busy, setBusy] = useState(false);
  const sending = useRef(false); // at once, where `busy` waits for the next rendering
  const plan = usePlan(form.request);
  const shown = form.withErrors(plan.error);
  const file = useQuery({
    ...fileQuery(draft.trainingFile ?? ""),
    enabled: draft.trainingFile !== null,
  });

  async function submit(event: FormEvent) {
    event.preventDefault();
    if (sending.current) return;
    sending.current = true;
    setBusy(true);
    const created = await form.submit(plan.isFresh ? (plan.plan?.id ?? null) : null);
    if (created !== null) {
      await navigate({ to: "/jobs/$jobId", params: { jobId: created.id } });
      return; // the form stays closed: it has its job
    }
    sending.current = false;
    setBusy(false);
    requestAnimationFrame(() => focusFault(element.current));
  }

  return (
    <form ref={element} className={styles.form} onSubmit={submit} noValidate>
      <div className="grid">
        <div className={styles.column}>
          <Panel title="Data">
            <FilePicker
              label="Training file"
              fileId={draft.trainingFile}
              error={shown.errors.trainingFile}
              onChoose={(chosen) =>
                change({
                  trainingFile: chosen?.id ?? null,
                  method: methodFor(chosen?.format, draft.method),
                })
              }
            />
            <FilePicker
              label="Validation file"
              fileId={draft.validationFile}
              error={shown.errors.validationFile}
              optional
              onChoose={(chosen) => change({ validationFile: chosen?.id ?? null })}
            />
          </Panel>
          <Preview
            fileId={draft.trainingFile}
            model={draft.model}
            method={draft.method}
            maxSeqLen={Number(draft.maxSeqLen) >= 2 ? Number(draft.maxSeqLen) : undefined}
            examples={file.data?.examples}
          />
        </div>
        <div className={styles.column}>
          <TrainingFields form={shown} />
          <LimitFields form={shown} hadDeadline={hadDeadline} />
        </div>
        <PlanPanel
          state={plan}
          limits={form.limits}
          refused={form.refused(plan.error)}
          missing={form.missing}
          onLimits={form.changeLimits}
        />
      </div>
      <SubmitBar plan={plan} error={shown.general} busy={busy} />
    </form>
  );
}

function focusFault(form: HTMLFormElement | null): void {
  form?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
}
