import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { Ago } from "../../components/time";
import { integer, words } from "../../format";
import type { System } from "./system-page";

/** How many requests Azure still takes, and regions whose requests fail. */
export function LimitsPanel({ system }: { system: System }) {
  return (
    <Panel title="Azure's rate limits" span={6}>
      {system.rate_budgets.length === 0 ? (
        <Empty title="Azure has named no limit yet">
          <p>It tells what is left with its answers.</p>
        </Empty>
      ) : (
        <Table caption="Requests that Azure still allowed">
          <thead>
            <tr>
              <th>Region</th>
              <th>Request</th>
              <th className="num">Left</th>
              <th>Counted</th>
            </tr>
          </thead>
          <tbody>
            {system.rate_budgets.map(({ region, request, left, at }) => (
              <tr key={`${region} ${request}`}>
                <td>{region}</td>
                <td>{words(request)}</td>
                <td className="num">{integer(Math.floor(left))}</td>
                <td>
                  <Ago at={at} />
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      {system.circuits.map(({ region, failures, closed_until }) => (
        <p key={region} className={closed_until === null ? "small muted" : "warn"}>
          {region}: {integer(failures)} requests failed in a row.{" "}
          {closed_until !== null && (
            <>
              The next one is sent <Ago at={closed_until} />.
            </>
          )}
        </p>
      ))}
    </Panel>
  );
}
