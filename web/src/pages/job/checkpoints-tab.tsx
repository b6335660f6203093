import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, body, type Schemas } from "../../api/client";
import { downloadFile } from "../../api/download";
import { itemsOf } from "../../api/pages";
import { checkpointsQuery, modelFilesQuery, storageQuery } from "../../api/queries";
import { Button } from "../../components/button";
import { Confirm } from "../../components/dialog";
import { Field } from "../../components/field";
import { LoadMore } from "../../components/load-more";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { Table } from "../../components/table";
import { At } from "../../components/time";
import { bytes, decimal, integer, money, words } from "../../format";
import styles from "./detail-tabs.module.css";
import type { Job } from "./use-live-job";

type Folder = Schemas["Folder"];
type Tier = Schemas["TierRequest"]["tier"];
const TIERS: readonly Tier[] = ["hot", "cool", "cold", "archive"];

/** Committed checkpoints and the final model: where they lie, and what they weigh and cost. */
export function CheckpointsTab({ job }: { job: Job }) {
  const checkpoints = useInfiniteQuery(checkpointsQuery(job.id));
  const storage = useQuery(storageQuery(job.id));
  if (checkpoints.data === undefined) {
    return checkpoints.error === null ? (
      <Loading lines={5} />
    ) : (
      <ErrorBox error={checkpoints.error} />
    );
  }
  const listed = itemsOf(checkpoints.data.pages);
  const folders = storage.data?.folders ?? [];
  return (
    <>
      {job.result !== null && (
        <FinalModel job={job} folder={folders.find(({ kind }) => kind === "model")} />
      )}
      {listed.length === 0 ? (
        <Empty title="No checkpoint yet">
          <p>The first one is committed after the first save.</p>
        </Empty>
      ) : (
        <Table caption="Committed checkpoints, newest first">
          <thead>
            <tr>
              <th className="num">Step</th>
              <th>Saved</th>
              <th className="hide-narrow">Kept as</th>
              <th className="num">Loss</th>
              <th className="num">Size</th>
              <th>Tier</th>
              <th>
                <span className="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {listed.map((checkpoint) => {
              const folder = folders.find((one) => one.checkpoint === checkpoint.id);
              return (
                <tr key={checkpoint.id}>
                  <td className="num">{integer(checkpoint.step_number)}</td>
                  <td>
                    <At at={checkpoint.created_at} />
                  </td>
                  <td className="hide-narrow">{checkpoint.kept_as ?? words(checkpoint.kind)}</td>
                  <td className="num">
                    {decimal(checkpoint.metrics.valid_loss ?? checkpoint.metrics.train_loss)}
                  </td>
                  <td className="num">{bytes(checkpoint.size_bytes)}</td>
                  <td>
                    <TierState folder={folder} />
                  </td>
                  <td>
                    <div className={styles.actions}>
                      {folder !== undefined && (
                        <MoveTier jobId={job.id} checkpointId={checkpoint.id} folder={folder} />
                      )}
                      <Link to="/new" search={{ model: checkpoint.fine_tuned_model_checkpoint }}>
                        Train from it
                      </Link>
                    </div>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </Table>
      )}
      <LoadMore query={checkpoints}>Older checkpoints</LoadMore>
      {storage.data !== undefined && (
        <p className="small muted">
          {bytes(storage.data.bytes)} in {storage.data.blobs} blobs, {money(storage.data.a_month)} a
          month; {money(storage.data.spent)} spent on storage.
        </p>
      )}
    </>
  );
}

function TierState({ folder }: { folder?: Folder }) {
  if (folder === undefined) return <>–</>;
  if (folder.moving_to !== null) return <>{`${folder.tier} → ${folder.moving_to}`}</>;
  return <>{folder.tier}</>;
}

function FinalModel({ job, folder }: { job: Job; folder?: Folder }) {
  const files = useQuery(modelFilesQuery(job.id));
  const [error, setError] = useState<unknown>(null);
  return (
    <section aria-label="Final model">
      <p className="row">
        <b>Final model</b>
        <code>{job.fine_tuned_model}</code>
        {folder !== undefined && (
          <>
            <TierState folder={folder} />
            <MoveTier jobId={job.id} folder={folder} />
          </>
        )}
      </p>
      {error !== null && <ErrorBox error={error} />}
      <details className={styles.files}>
        <summary>{`${files.data?.data.length ?? 0} files`}</summary>
        <Table caption="Files of the final model">
          <tbody>
            {(files.data?.data ?? []).map(({ name, bytes: size }) => (
              <tr key={name}>
                <td>{name}</td>
                <td className="num">{bytes(size)}</td>
                <td className="right">
                  <Button
                    onClick={() =>
                      downloadFile(`/v1/fine_tuning/jobs/${job.id}/model/${name}`, name).catch(
                        setError,
                      )
                    }
                  >
                    Download
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      </details>
    </section>
  );
}

interface MoveProps {
  jobId: string;
  checkpointId?: string; // none: the final model
  folder: Folder;
}

function MoveTier({ jobId, checkpointId, folder }: MoveProps) {
  const client = useQueryClient();
  const current = TIERS.find((tier) => tier === folder.tier) ?? "hot";
  const [tier, setTier] = useState<Tier>(current);
  const cost = useQuery({
    queryKey: ["tier", jobId, checkpointId ?? "model", tier],
    queryFn: () => move(jobId, checkpointId, tier, true),
    enabled: tier !== current,
    retry: false,
  });
  return (
    <Confirm
      trigger={<Button>Move</Button>}
      title="Move to another access tier"
      action={`Move to ${tier}`}
      onConfirm={async () => {
        await move(jobId, checkpointId, tier, false);
        await client.invalidateQueries({ queryKey: storageQuery(jobId).queryKey });
      }}
    >
      <Field label="Tier" hint="Colder tiers cost less a month and more to read.">
        <select value={tier} onChange={(event) => setTier(event.target.value as Tier)}>
          {TIERS.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </Field>
      {cost.error !== null && <ErrorBox error={cost.error} />}
      {cost.data !== undefined && (
        <pre className={styles.json}>{JSON.stringify(cost.data.cost, null, 2)}</pre>
      )}
    </Confirm>
  );
}

function move(jobId: string, checkpointId: string | undefined, tier: Tier, dryRun: boolean) {
  const request = { tier, priority: "standard" as const, dry_run: dryRun };
  return checkpointId === undefined
    ? body(
        api.POST("/v1/fine_tuning/jobs/{job_id}/model/tier", {
          params: { path: { job_id: jobId } },
          body: request,
        }),
      )
    : body(
        api.POST("/v1/fine_tuning/jobs/{job_id}/checkpoints/{checkpoint_id}/tier", {
          params: { path: { job_id: jobId, checkpoint_id: checkpointId } },
          body: request,
        }),
      );
}
