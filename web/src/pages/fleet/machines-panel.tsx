import { Link } from "@tanstack/react-router";
import { Fragment, useState } from "react";
import type { Schemas } from "../../api/client";
import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { Tag } from "../../components/tag";
import { Ago } from "../../components/time";
import { integer, money } from "../../format";
import type { Fleet } from "./fleet-page";
import styles from "./fleet-page.module.css";

type FleetAttempt = Schemas["FleetAttempt"];
type FleetNode = Schemas["FleetNode"];
const COLUMNS = 7;

/** Scale sets and clusters, each with its nodes. */
export function MachinesPanel({ fleet }: { fleet: Fleet }) {
  return (
    <Panel title="Scale sets and clusters">
      {fleet.attempts.length === 0 ? (
        <Empty title="No machines are rented now">
          <p>They appear while a job trains.</p>
        </Empty>
      ) : (
        <Table caption="Scale sets and clusters, oldest first">
          <thead>
            <tr>
              <th>Job</th>
              <th>State</th>
              <th>Machines</th>
              <th>Place</th>
              <th>Since</th>
              <th className="num">An hour</th>
              <th>Nodes</th>
            </tr>
          </thead>
          <tbody>
            {fleet.attempts.map((attempt) => (
              <AttemptRows key={attempt.id} attempt={attempt} />
            ))}
          </tbody>
        </Table>
      )}
      {fleet.has_more && <p className="small muted">There are more; the oldest are shown.</p>}
    </Panel>
  );
}

function AttemptRows({ attempt }: { attempt: FleetAttempt }) {
  const [open, setOpen] = useState(false);
  const name = attempt.job_name ?? attempt.job;
  return (
    <Fragment>
      <tr>
        <td>
          <Link to="/jobs/$jobId" params={{ jobId: attempt.job }}>
            {name}
          </Link>
          <div className="small muted">attempt {attempt.number}</div>
        </td>
        <td>
          <Tag state={attempt.state} />
        </td>
        <td>
          {integer(attempt.running)} of {integer(attempt.machines)} run
          <div className="small muted">{integer(attempt.joined)} joined</div>
        </td>
        <td>
          {attempt.region}, {capacityName(attempt.capacity_type)}
          <div className="small muted">
            {attempt.vm_size}
            {attempt.engine === "azureml" && ", Azure ML"}
          </div>
        </td>
        <td>
          <Ago at={attempt.since} />
        </td>
        <td className="num">
          {money(attempt.per_hour)}
          <div className="small muted">on demand {money(attempt.on_demand_per_hour)}</div>
        </td>
        <td>
          <button
            type="button"
            className={styles.toggle}
            aria-expanded={open}
            onClick={() => setOpen(!open)}
          >
            <span className="visually-hidden">Nodes of {name}: </span>
            {integer(attempt.nodes.length)} <span aria-hidden="true">{open ? "▾" : "▸"}</span>
          </button>
        </td>
      </tr>
      {open && (
        <tr>
          <td colSpan={COLUMNS} className={styles.inner}>
            <p className="small muted">
              In Azure: <code>{attempt.name}</code>
              {attempt.seen_at !== null && (
                <>
                  , seen <Ago at={attempt.seen_at} />
                </>
              )}
              {attempt.boot !== null && `. Last boot report: ${attempt.boot}`}
            </p>
            {attempt.nodes.length === 0 ? (
              <p className="muted">No machine has joined yet.</p>
            ) : (
              <Nodes nodes={attempt.nodes} of={name} />
            )}
          </td>
        </tr>
      )}
    </Fragment>
  );
}

function Nodes({ nodes, of }: { nodes: FleetNode[]; of: string }) {
  return (
    <Table caption={`Nodes of ${of}`}>
      <thead>
        <tr>
          <th>Node</th>
          <th>Phase</th>
          <th className="num">Step</th>
          <th>Joined</th>
          <th>Last heartbeat</th>
          <th>Trouble</th>
        </tr>
      </thead>
      <tbody>
        {nodes.map((node) => (
          <tr key={node.id}>
            <td>{node.name}</td>
            <td>
              <Tag state={node.phase} />
            </td>
            <td className="num">{integer(node.step)}</td>
            <td>
              <Ago at={node.registered_at} />
            </td>
            <td>
              <Ago at={node.heard_at} />
            </td>
            <td className={troubleOf(node) === "none" ? "muted" : "bad"}>{troubleOf(node)}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function troubleOf({ error, is_evicting, unhealthy_since }: FleetNode): string {
  if (is_evicting) return "Azure takes it back";
  return error ?? (unhealthy_since === null ? "none" : "unhealthy");
}

export function capacityName(capacity: "spot" | "on_demand"): string {
  return capacity === "spot" ? "Spot" : "on demand";
}
