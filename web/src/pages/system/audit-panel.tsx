import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import { AUDIT_PAGE, auditQuery } from "../../api/organization-queries";
import { itemsOf } from "../../api/pages";
import { Answer } from "../../components/answer";
import { Button } from "../../components/button";
import { LoadMore } from "../../components/load-more";
import { Panel } from "../../components/panel";
import { Table } from "../../components/table";
import { Ago } from "../../components/time";
import { integer, money, words } from "../../format";
import styles from "./system-page.module.css";

type Resource = Schemas["Resource"];
type Summary = Schemas["Audit"]["summary"];

const MEANING: Record<string, string> = {
  used: "an attempt uses them",
  going: "are being deleted",
  lingering: "should be deleted, and still exist",
  unknown: "the database does not know them",
  missing: "an attempt needs them, and Azure has none",
  untracked: "resources without their scale set",
};

/** What exists in Azure, against what the database knows; it asks Azure, so it does not poll. */
export function AuditPanel() {
  const audit = useInfiniteQuery({ ...auditQuery, staleTime: 60_000 });
  return (
    <Panel
      title="Audit of Azure"
      aside={
        <Button disabled={audit.isFetching} onClick={() => void audit.refetch()}>
          {audit.isFetching ? "Asking Azure" : "Ask Azure again"}
        </Button>
      }
    >
      <Answer query={audit} lines={8}>
        {({ pages }) => {
          const leaks = itemsOf(pages).filter((resource) => resource.leaks);
          const summary = pages.at(-1)?.summary;
          if (summary === undefined) return null;
          return (
            <>
              <Verdict summary={summary} listed={leaks.length} />
              <Leaks resources={leaks} />
              {leaks.length < summary.leaks && (
                <LoadMore query={audit}>Look at {integer(AUDIT_PAGE)} more resources</LoadMore>
              )}
              <Groups summary={summary} />
            </>
          );
        }}
      </Answer>
    </Panel>
  );
}

function Verdict({ summary, listed }: { summary: Summary; listed: number }) {
  const { leaks, unpriced_leaks: unpriced, unseen, unknown_containers: containers } = summary;
  return (
    <div className={styles.verdict}>
      <p className={leaks === 0 ? "good" : "bad"}>
        {leaks === 0 && "Nothing leaks."}
        {leaks > 0 && (leaks === 1 ? "1 resource leaks." : `${integer(leaks)} resources leak.`)}
        {unpriced > 0 && ` The price of ${integer(unpriced)} is not known.`}
        {listed < leaks && ` ${integer(listed)} of them are listed.`}
      </p>
      {unseen !== null && (
        <p className="warn">Resources without a scale set are not known: {unseen}</p>
      )}
      {containers === null && <p className="warn">Blob did not answer: containers are unknown.</p>}
      {(containers ?? 0) > 0 && (
        <p className="warn">
          {integer(containers ?? 0)} containers of jobs that the database does not know.
        </p>
      )}
    </div>
  );
}

function Leaks({ resources }: { resources: Resource[] }) {
  if (resources.length === 0) return null;
  return (
    <Table caption="Resources that leak">
      <thead>
        <tr>
          <th>Resource</th>
          <th>Why</th>
          <th>Place</th>
          <th>Since</th>
          <th>Job</th>
          <th className="num">An hour</th>
        </tr>
      </thead>
      <tbody>
        {resources.map((resource) => (
          <tr key={`${resource.type} ${resource.id}`}>
            <td>
              <code>{resource.id}</code>
            </td>
            <td>{MEANING[resource.standing] ?? words(resource.standing)}</td>
            <td>
              {resource.region}
              {resource.vm_size !== "" && `, ${integer(resource.machines)} × ${resource.vm_size}`}
            </td>
            <td>{resource.since === null ? "–" : <Ago at={resource.since} />}</td>
            <td>
              {resource.job === null ? (
                "–"
              ) : (
                <Link to="/jobs/$jobId" params={{ jobId: resource.job }}>
                  {resource.job}
                </Link>
              )}
            </td>
            <td className="num">{money(resource.per_hour)}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

interface Group {
  scale_sets?: number;
  resources?: number;
  machines: number;
  per_hour: string;
}

function Groups({ summary }: { summary: Summary }) {
  return (
    <Table caption="Scale sets and other resources by standing">
      <thead>
        <tr>
          <th>Standing</th>
          <th className="num">Resources</th>
          <th className="num hide-narrow">Machines</th>
          <th className="num">An hour</th>
        </tr>
      </thead>
      <tbody>
        {Object.entries(summary.groups as Record<string, Group>).map(([name, group]) => (
          <tr key={name}>
            <td>
              {words(name)} <span className="small muted">{MEANING[name]}</span>
            </td>
            <td className="num">{integer(group.scale_sets ?? group.resources ?? 0)}</td>
            <td className="num hide-narrow">{integer(group.machines)}</td>
            <td className="num">{money(group.per_hour)}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
