import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "../../api/client";
import { keysQuery } from "../../api/organization-queries";
import { itemsOf } from "../../api/pages";
import { storedKey, storeKey } from "../../api/session";
import { Answer } from "../../components/answer";
import { Button } from "../../components/button";
import { Confirm } from "../../components/dialog";
import { LoadMore } from "../../components/load-more";
import { Panel } from "../../components/panel";
import { Table } from "../../components/table";
import { Ago, At, useNow } from "../../components/time";
import { NewKeyForm } from "./new-key-form";
import styles from "./settings-page.module.css";
import { ShownKey } from "./shown-key";

export type Key = Schemas["Key"];
export type NewKey = Schemas["NewKey"];

/** The keys of the project: make one, see when each was used, revoke one. */
export function KeysPanel() {
  const keys = useInfiniteQuery(keysQuery);
  const [made, setMade] = useState<NewKey | null>(null); // nowhere else: it is shown once
  return (
    <Panel title="API keys">
      {made === null ? (
        <NewKeyForm onMade={setMade} />
      ) : (
        <ShownKey made={made} done={() => setMade(null)} />
      )}
      <Answer query={keys} lines={4}>
        {({ pages }) => (
          <>
            <div className={styles.keys}>
              <KeyTable keys={itemsOf(pages)} />
            </div>
            <LoadMore query={keys}>Older keys</LoadMore>
          </>
        )}
      </Answer>
    </Panel>
  );
}

function KeyTable({ keys }: { keys: Key[] }) {
  return (
    <Table caption="API keys, newest first">
      <thead>
        <tr>
          <th>Name</th>
          <th className="hide-narrow">Scope</th>
          <th className="hide-narrow">Created</th>
          <th>Expires</th>
          <th className="hide-narrow">Last used</th>
          <th>
            <span className="visually-hidden">Revoke</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.id}>
            <td>
              {key.name}
              <div className="small muted">
                <code>{key.hint}</code>
                <span className="only-narrow">, {key.scope}</span>
                {isOfThisTab(key) && ", used in this tab"}
              </div>
            </td>
            <td className="hide-narrow">{key.scope}</td>
            <td className="hide-narrow">
              <At at={key.created_at} />
            </td>
            <td>
              <Expiry at={key.expires_at} />
            </td>
            <td className="hide-narrow">
              {key.last_used_at === null ? "never" : <Ago at={key.last_used_at} />}
            </td>
            <td className="right">
              <Revoke revoked={key} last={keys.length === 1} />
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function Expiry({ at }: { at: number | null }) {
  const now = useNow();
  if (at === null) return <>never</>;
  return (
    <span className={at <= now ? "bad" : undefined}>
      {at <= now && "expired "}
      <Ago at={at} />
    </span>
  );
}

/** Whether the hint, `rk-...abcd`, ends as the key of this tab does. */
export function isOfThisTab({ hint }: Key): boolean {
  const ending = hint.split("...").at(-1) ?? "";
  return ending !== "" && (storedKey()?.endsWith(ending) ?? false);
}

function Revoke({ revoked, last }: { revoked: Key; last: boolean }) {
  const client = useQueryClient();
  const own = isOfThisTab(revoked);
  async function revoke() {
    await body(api.DELETE("/v1/api_keys/{key_id}", { params: { path: { key_id: revoked.id } } }));
    if (own) storeKey(null);
    else await client.invalidateQueries({ queryKey: keysQuery.queryKey });
  }
  return (
    <Confirm
      trigger={
        <Button kind="danger" aria-label={`Revoke ${revoked.name}`}>
          Revoke
        </Button>
      }
      title={`Revoke ${revoked.name}?`}
      action="Revoke the key"
      danger
      onConfirm={revoke}
    >
      <p>
        The key {revoked.hint} opens nothing any more, at once and for good. What uses it fails with
        401.
        {own && " You use it in this tab, so you are signed out."}
        {last && " It is the last key of the project: only an operator can make another."}
      </p>
    </Confirm>
  );
}
