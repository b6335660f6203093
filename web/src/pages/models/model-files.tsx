import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { ApiError } from "../../api/client";
import { downloadFile } from "../../api/download";
import { modelCardQuery } from "../../api/organization-queries";
import { modelFilesQuery } from "../../api/queries";
import { Answer } from "../../components/answer";
import { Button } from "../../components/button";
import { Copyable } from "../../components/copyable";
import { Panel } from "../../components/panel";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { Table } from "../../components/table";
import { bytes } from "../../format";
import styles from "./models-page.module.css";

const ModelCard = lazy(() => import("./model-card"));

/** A final model's commands, card and files. */
export function ModelFiles({ jobId, name }: { jobId: string; name: string }) {
  const files = useQuery(modelFilesQuery(jobId));
  const card = useQuery({ ...modelCardQuery(jobId), retry: false });
  const missing = card.error instanceof ApiError && card.error.status === 404;
  return (
    <>
      <Panel title="Use it">
        <div className={styles.panels}>
          <Copyable title="Download all files" text={`rekindle download ${jobId} ${name}`} />
          <Copyable title="Load it with transformers" text={usage(card.data, name)} />
        </div>
      </Panel>
      <Panel title="Model card">
        {missing ? (
          <Empty title="This model has no card" />
        ) : (
          <Answer query={card} lines={12}>
            {(text) => (
              <Suspense fallback={<Loading lines={12} />}>
                <ModelCard text={text} />
              </Suspense>
            )}
          </Answer>
        )}
      </Panel>
      <Panel title="Files">
        <Answer query={files} lines={10}>
          {({ data }) => (
            <div className={styles.files}>
              <FileTable jobId={jobId} files={data} />
            </div>
          )}
        </Answer>
      </Panel>
    </>
  );
}

/** The Python of the card, which knows the kind of model; otherwise what loads any chat model. */
export function usage(card: string | undefined, folder: string): string {
  const block = /```python\n([\s\S]*?)\n```/.exec(card ?? "")?.[1];
  if (block !== undefined) return block.replace(/^folder = ".".*$/m, `folder = "${folder}"`);
  return [
    "import transformers",
    "",
    `folder = "${folder}"`,
    "model = transformers.AutoModelForCausalLM.from_pretrained(folder)",
    "tokenizer = transformers.AutoTokenizer.from_pretrained(folder)",
  ].join("\n");
}

interface File {
  name: string;
  bytes: number;
  sha256?: string | null;
}

function FileTable({ jobId, files }: { jobId: string; files: File[] }) {
  const [error, setError] = useState<unknown>(null);
  const download = (name: string) => {
    setError(null);
    const file = name.split("/").at(-1) ?? name;
    downloadFile(`/v1/fine_tuning/jobs/${jobId}/model/${name}`, file).catch(setError);
  };
  return (
    <>
      {error !== null && <ErrorBox error={error} />}
      <Table caption="Files of the model">
        <thead>
          <tr>
            <th>File</th>
            <th className="num">Size</th>
            <th className="hide-narrow">SHA-256</th>
            <th>
              <span className="visually-hidden">Download</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {files.map(({ name, bytes: size, sha256 }) => (
            <tr key={name}>
              <td className={styles.file}>{name}</td>
              <td className="num">{bytes(size)}</td>
              <td className="hide-narrow">
                <code className={styles.hash} title={sha256 ?? undefined}>
                  {sha256 ?? "–"}
                </code>
              </td>
              <td className="right">
                <Button aria-label={`Download ${name}`} onClick={() => download(name)}>
                  Download
                </Button>
              </td>
            </tr>
          ))}
        </tbody>
      </Table>
    </>
  );
}
