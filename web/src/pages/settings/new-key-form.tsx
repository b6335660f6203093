import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, body, type Schemas } from "../../api/client";
import { keysQuery } from "../../api/organization-queries";
import { Button } from "../../components/button";
import { Field } from "../../components/field";
import { ErrorBox } from "../../components/states";
import type { NewKey } from "./keys-panel";
import styles from "./settings-page.module.css";

type Scope = Schemas["Scope"];

const DAY = 86_400;
const SCOPES: readonly [Scope, string][] = [
  ["read", "read: change nothing"],
  ["write", "write: also create and change"],
  ["operator", "operator: also see all projects"],
];
const LIFETIMES: readonly [string, string][] = [
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "1 year"],
  ["", "as long as the key that makes it"],
];

/** Make a key; `onMade` gets its secret, which the API tells only once. */
export function NewKeyForm({ onMade }: { onMade: (made: NewKey) => void }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Scope>("write");
  const [days, setDays] = useState("90");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);

  async function create(event: FormEvent) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    const ends = days === "" ? undefined : Math.floor(Date.now() / 1000) + Number(days) * DAY;
    try {
      const request = { name: name.trim(), scope, expires_at: ends };
      onMade((await body(api.POST("/v1/api_keys", { body: request }))) as NewKey);
      void client.invalidateQueries({ queryKey: keysQuery.queryKey });
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  }

  return (
    <form className={styles.form} onSubmit={create}>
      <Field label="Name of a new key">
        <input
          name="name"
          autoComplete="off"
          maxLength={100}
          placeholder="for example ci"
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
      </Field>
      <Field label="Scope">
        <select value={scope} onChange={(event) => setScope(event.target.value as Scope)}>
          {SCOPES.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Valid for">
        <select value={days} onChange={(event) => setDays(event.target.value)}>
          {LIFETIMES.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      </Field>
      <Button kind="primary" type="submit" disabled={busy || name.trim() === ""}>
        {busy ? "Creating" : "Create key"}
      </Button>
      {error !== null && (
        <div className={styles.error}>
          <ErrorBox error={error} />
        </div>
      )}
    </form>
  );
}
