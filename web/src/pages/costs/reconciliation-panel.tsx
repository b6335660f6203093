import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Schemas } from "../../api/client";
import { reconciliationQuery } from "../../api/organization-queries";
import { itemsOf } from "../../api/pages";
import { Answer } from "../../components/answer";
import { LoadMore } from "../../components/load-more";
import { Facts, Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { Ago } from "../../components/time";
import { integer, money, words } from "../../format";
import styles from "./costs-page.module.css";

type Reconciliation = Omit<Schemas["Reconciliation"], "attempts" | "until">;
type Attempt = Schemas["ReconciledAttempt"];
type Line = Schemas["ReconciledLine"];

/** The ledger beside Azure's bill: each difference with its cause. */
export function ReconciliationPanel({ days }: { days: number }) {
  const query = useInfiniteQuery({
    ...reconciliationQuery(days),
    placeholderData: (previous) => previous,
  });
  const [first] = query.data?.pages ?? [];
  return (
    <Panel title="Reconciliation with Azure's bill" aside={<Read data={first} />}>
      <Answer query={query} lines={6}>
        {({ pages }) => (
          <>
            {first !== undefined && <Together data={first} />}
            <Attempts attempts={itemsOf(pages)} hasMore={query.hasNextPage}>
              <LoadMore query={query}>More attempts</LoadMore>
            </Attempts>
          </>
        )}
      </Answer>
    </Panel>
  );
}

/** All attempts together: the ledger, the bill, and what differs. */
function Together({ data }: { data: Reconciliation }) {
  return (
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
    </>
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

interface AttemptsProps {
  attempts: Attempt[];
  hasMore: boolean;
  children: ReactNode; // below the table
}

function Attempts({ attempts, hasMore, children }: AttemptsProps) {
  if (attempts.length === 0) return null;
  return (
    <details className={styles.details}>
      <summary>
        {attempts.length === 1 ? "1 attempt" : `${integer(attempts.length)} attempts`}
        {hasMore && " with the largest differences"}
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
          {attempts.map((attempt) => (
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
      {children}
    </details>
  );
}
