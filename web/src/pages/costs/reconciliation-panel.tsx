import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { reconciliationQuery } from "../../api/organization-queries";
import { Answer } from "../../components/answer";
import { Facts, Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { Ago } from "../../components/time";
import { integer, money, words } from "../../format";
import styles from "./costs-page.module.css";

type Reconciliation = Schemas["Reconciliation"];
type Line = Schemas["ReconciledLine"];

/** The ledger beside Azure's bill: each difference with its cause. */
export function ReconciliationPanel({ days }: { days: number }) {
  const query = useQuery({
    ...reconciliationQuery(days),
    placeholderData: (previous) => previous,
  });
  return (
    <Panel title="Reconciliation with Azure's bill" aside={<Read data={query.data} />}>
      <Answer query={query} lines={6}>
        {(data) => (
          <>
            {data.trouble !== null && (
              <p className="warn">
                Azure did not answer <Ago at={data.trouble.at} />: {data.trouble.message}
              </p>
            )}
            <Facts
              facts={[
                { value: money(data.whole.metered), label: "measured by Rekindle" },
                { value: money(data.whole.billed), label: "billed by Azure" },
                { value: money(data.whole.difference), label: "difference" },
              ]}
            />
            <div className={styles.causes}>
              <Causes line={data.whole} />
            </div>
            <Unassigned rows={data.of_nobody} />
            <Attempts data={data} />
          </>
        )}
      </Answer>
    </Panel>
  );
}

function Read({ data }: { data?: Reconciliation }) {
  if (data === undefined) return null;
  return (
    <span className="small muted">
      {data.told_at === null ? (
        "Azure's bill was not read yet"
      ) : (
        <>
          Bill read <Ago at={data.told_at} />, complete until {data.told_until}
        </>
      )}
    </span>
  );
}

function Causes({ line }: { line: Line }) {
  if (line.differences.length === 0) {
    return <Empty title="The ledger and the bill agree" />;
  }
  return (
    <Table caption="Differences by cause">
      <thead>
        <tr>
          <th>Cause</th>
          <th className="num">Amount</th>
          <th>Why</th>
        </tr>
      </thead>
      <tbody>
        {line.differences.map(({ cause, amount, why }) => (
          <tr key={cause}>
            <td>{words(cause)}</td>
            <td className="num">{money(amount)}</td>
            <td>{why}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function Unassigned({ rows }: { rows: Reconciliation["of_nobody"] }) {
  if (rows.length === 0) return null;
  return (
    <>
      <h3 className={styles.heading}>Billed, and charged to no project</h3>
      <Table caption="Billed, and charged to no project">
        <thead>
          <tr>
            <th>Cause</th>
            <th>Category</th>
            <th className="num">Billed</th>
            <th>Why</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ cause, category, billed, why }) => (
            <tr key={`${cause} ${category}`}>
              <td>{words(cause)}</td>
              <td>{category}</td>
              <td className="num">{money(billed)}</td>
              <td>{why}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </>
  );
}

function Attempts({ data }: { data: Reconciliation }) {
  if (data.attempts.length === 0) return null;
  return (
    <details className={styles.details}>
      <summary>
        {data.attempts.length === 1 ? "1 attempt" : `${integer(data.attempts.length)} attempts`}
        {data.has_more && " of more"}
      </summary>
      <Table caption="Reconciliation by attempt">
        <thead>
          <tr>
            <th>Attempt</th>
            <th className="num">Measured</th>
            <th className="num">Billed</th>
            <th className="num">Difference</th>
            <th>Causes</th>
          </tr>
        </thead>
        <tbody>
          {data.attempts.map((attempt) => (
            <tr key={attempt.id}>
              <td>
                <code>{attempt.id}</code>
              </td>
              <td className="num">{money(attempt.metered)}</td>
              <td className="num">{money(attempt.billed)}</td>
              <td className="num">{money(attempt.difference)}</td>
              <td>{attempt.differences.map(({ cause }) => words(cause)).join(", ") || "None"}</td>
            </tr>
          ))}
        </tbody>
      </Table>
    </details>
  );
}
