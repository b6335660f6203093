import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { Ago } from "../../components/time";
import { duration, words } from "../../format";
import type { System } from "./system-page";
import styles from "./system-page.module.css";

/** Work that one replica does for all of them, and which one. */
export function TurnsPanel({ system }: { system: System }) {
  return (
    <Panel title="Loops that one replica runs for all" span={6}>
      {system.turns.length === 0 ? (
        <Empty title="No replica has taken any yet" />
      ) : (
        <Table caption="Loops, and the replica that runs each">
          <thead>
            <tr>
              <th>Loop</th>
              <th>Replica</th>
              <th>State</th>
              <th>Lease ends</th>
            </tr>
          </thead>
          <tbody>
            {system.turns.map(({ what, holder, ends_at, is_held }) => (
              <tr key={what}>
                <td>{words(what)}</td>
                <td>
                  <code className={styles.holder}>{holder}</code>
                </td>
                <td className={is_held ? "good" : "warn"}>{is_held ? "held" : "not held"}</td>
                <td>
                  <Ago at={ends_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </Panel>
  );
}

/** The processes of the service, by their connections to the database. */
export function ReplicasPanel({ system }: { system: System }) {
  return (
    <Panel title="Replicas" span={6}>
      {system.replicas.length === 0 ? (
        <Empty title="No replica listens to the database" />
      ) : (
        <Table caption="Replicas, what they run and the loops that they lead">
          <thead>
            <tr>
              <th>Replica</th>
              <th>Runs</th>
              <th className="hide-narrow">Release</th>
              <th>Connected</th>
              <th>Leads</th>
            </tr>
          </thead>
          <tbody>
            {system.replicas.map(({ name, command, version, connected_at, leads }) => (
              <tr key={name}>
                <td>
                  <code className={styles.holder}>{name}</code>
                  {name === system.this_replica.name && (
                    <span className="small muted"> answered this page</span>
                  )}
                </td>
                <td>{command === "all" ? "API and reconciler" : command}</td>
                <td className="hide-narrow">{version ?? "see the image's tag"}</td>
                <td>
                  <Ago at={connected_at} />
                </td>
                <td>{leads.length === 0 ? "–" : leads.map(words).join(", ")}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </Panel>
  );
}

/** What is read from Azure regularly: prices, quota, bills. */
export function ReadingsPanel({ system }: { system: System }) {
  return (
    <Panel title="Read from Azure" span={6}>
      {system.readings.length === 0 ? (
        <Empty title="Nothing was read yet" />
      ) : (
        <Table caption="What is read from Azure, and when">
          <thead>
            <tr>
              <th>What</th>
              <th>Last read</th>
              <th className="hide-narrow">Next</th>
              <th>State</th>
            </tr>
          </thead>
          <tbody>
            {system.readings.map(({ what, read_at, due_at, lag_seconds, trouble }) => (
              <tr key={what}>
                <td>{words(what)}</td>
                <td>{read_at === null ? "never" : <Ago at={read_at} />}</td>
                <td className="hide-narrow">
                  <Ago at={due_at} />
                </td>
                <td className={trouble === null ? undefined : "warn"}>
                  {trouble ?? (lag_seconds > 0 ? `${duration(lag_seconds)} late` : "on time")}
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </Panel>
  );
}
