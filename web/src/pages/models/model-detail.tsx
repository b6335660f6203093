import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { api, body, type Schemas } from "../../api/client";
import { jobsFromQuery } from "../../api/organization-queries";
import { itemsOf } from "../../api/pages";
import { modelFilesQuery, modelsQuery, storageQuery } from "../../api/queries";
import { Answer } from "../../components/answer";
import { Button, buttonClass } from "../../components/button";
import { Confirm } from "../../components/dialog";
import { LoadMore } from "../../components/load-more";
import { Facts, Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { JobTag } from "../../components/tag";
import { Ago, At } from "../../components/time";
import { bytes, integer, money } from "../../format";
import { nameOf } from "../job/use-live-job";
import { type Model, shortName, sourceOf } from "./lineage";
import { ModelFiles } from "./model-files";
import styles from "./models-page.module.css";

type Folder = Schemas["Folder"];

/** One model: where it comes from, its files and card, and what was trained from it. */
export function ModelDetail({ model }: { model: Model }) {
  const { job = null, step = null } = model;
  return (
    <div className={styles.panels}>
      <Panel>
        <div className="row">
          <h2 className={styles.title}>
            {shortName(model.id)}
            {step !== null && `, step ${integer(step)}`}
          </h2>
          <span className="grow" />
          <Link to="/new" search={{ model: model.id }} className={buttonClass("primary")}>
            Train from it
          </Link>
          {job !== null && <DeleteModel model={model} job={job} />}
        </div>
        <p className={`small muted ${styles.id}`}>
          <code>{model.id}</code>
        </p>
        {job === null ? (
          <Facts facts={[{ value: <Ago at={model.created} />, label: "staged" }]} />
        ) : (
          <TunedFacts model={model} job={job} />
        )}
      </Panel>
      {job !== null && step === null && <ModelFiles jobId={job} name={shortName(model.id)} />}
      <TrainedFrom model={model} />
    </div>
  );
}

function TunedFacts({ model, job }: { model: Model; job: string }) {
  const { base_model: base = null, step = null } = model;
  const folder = useFolder(model, job);
  const above = base === null ? null : sourceOf(base);
  return (
    <Facts
      facts={[
        {
          value: <Ago at={model.created} />,
          label: (
            <>
              {step === null ? "made by job " : "saved by job "}
              <Link to="/jobs/$jobId" params={{ jobId: job }} className={styles.by}>
                {shortName(model.id)}
              </Link>
            </>
          ),
        },
        {
          value: folder === undefined ? "–" : bytes(folder.bytes),
          label: folder === undefined ? "in storage" : `in storage, tier ${folder.tier}`,
        },
        {
          value: (
            <Link to="/models" search={{ model: base ?? undefined }} className={styles.base}>
              {base === null ? "–" : shortName(base)}
            </Link>
          ),
          label: above?.step == null ? "trained from" : `trained from, step ${integer(above.step)}`,
        },
      ]}
    />
  );
}

/** Where the model lies in storage. */
function useFolder({ step = null }: Model, job: string): Folder | undefined {
  const { data } = useQuery(storageQuery(job));
  return data?.folders.find(({ kind, step_number }) =>
    step === null ? kind === "model" : kind === "checkpoint" && step_number === step,
  );
}

function DeleteModel({ model, job }: { model: Model; job: string }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const folder = useFolder(model, job);
  const what = model.step == null ? "model" : "checkpoint";
  async function remove() {
    await body(api.DELETE("/v1/models/{model}", { params: { path: { model: model.id } } }));
    void navigate({ to: "/models", search: ({ search }) => ({ search }), replace: true });
    client.removeQueries({ queryKey: modelFilesQuery(job).queryKey });
    void client.invalidateQueries({ queryKey: storageQuery(job).queryKey });
    await client.invalidateQueries({ queryKey: modelsQuery.queryKey });
  }
  return (
    <Confirm
      trigger={<Button kind="danger">Delete</Button>}
      title={`Delete the ${what} for good?`}
      action={`Delete the ${what}`}
      danger
      onConfirm={remove}
    >
      <p>
        {folder === undefined ? "Its files" : bytes(folder.bytes)} in storage{" "}
        {folder === undefined ? "are" : "is"} freed. It cannot be brought back, and no job can start
        from it any more.{" "}
        {model.step == null
          ? "Checkpoints of its job and models that were trained from it stay."
          : "Other checkpoints and the final model stay."}
      </p>
    </Confirm>
  );
}

/** Jobs that began with this model, also those without a model of their own. */
function TrainedFrom({ model }: { model: Model }) {
  const jobs = useInfiniteQuery(jobsFromQuery(model.id));
  // The search also looks elsewhere than in the model.
  const rows = itemsOf(jobs.data?.pages ?? []).filter((job) => job.model === model.id);
  return (
    <Panel title="Jobs trained from it">
      <Answer query={jobs} lines={3}>
        {() => (
          <>
            {rows.length === 0 && !jobs.hasNextPage && (
              <Empty title="No job was trained from it yet" />
            )}
            {rows.length > 0 && (
              <Table caption="Jobs trained from this model, newest first">
                <thead>
                  <tr>
                    <th>Job</th>
                    <th>State</th>
                    <th className="num">Spent</th>
                    <th>Created</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.map((job) => (
                    <tr key={job.id}>
                      <td>
                        <Link to="/jobs/$jobId" params={{ jobId: job.id }}>
                          {nameOf(job)}
                        </Link>
                      </td>
                      <td>
                        <JobTag job={job} />
                      </td>
                      <td className="num">{money(job.cost.spent)}</td>
                      <td>
                        <At at={job.created_at} />
                      </td>
                    </tr>
                  ))}
                </tbody>
              </Table>
            )}
            <LoadMore query={jobs}>Older jobs</LoadMore>
          </>
        )}
      </Answer>
    </Panel>
  );
}
