import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { itemsOf } from "../../api/pages";
import { jobsQuery, summaryQuery } from "../../api/queries";
import { buttonClass } from "../../components/button";
import { Facts, Panel } from "../../components/panel";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { integer, money } from "../../format";
import type { JobsSearch } from "../../search";
import { BulkActions } from "./bulk-actions";
import { Filters } from "./filters";
import { FirstRun } from "./first-run";
import { JobsTable } from "./jobs-table";
import { useLiveJobs } from "./use-live-jobs";

const route = getRouteApi("/jobs");

/** Every job of the project: filter, search, sort, pause and cancel. */
export function JobsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const live = useLiveJobs();
  const jobs = useInfiniteQuery({
    ...jobsQuery(search),
    placeholderData: (previous) => previous,
    refetchInterval: live === "polling" ? 15_000 : false,
  });
  const summary = useQuery(summaryQuery);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());

  const change = (changed: Partial<JobsSearch>) => {
    void navigate({ search: { ...search, ...changed }, replace: true, resetScroll: false });
  };
  useEffect(() => {
    document.title = "Jobs · Rekindle";
  }, []);

  const rows = jobs.data && itemsOf(jobs.data.pages);
  const chosen = rows?.filter(({ id }) => selected.has(id)) ?? [];
  const filtered = search.search !== undefined || search.phase !== undefined;

  if (rows?.length === 0 && !filtered && !jobs.isPlaceholderData) return <FirstRun />;
  return (
    <>
      <div className="row">
        <h1>Jobs</h1>
        <span className="grow" />
        <Link to="/new" className={buttonClass("primary")}>
          New job
        </Link>
      </div>
      <div className="grid">
        <Panel>
          <Summary data={summary.data} />
        </Panel>
        <section className="span-12" aria-label="List of jobs">
          <Filters search={search} counts={summary.data?.phases} change={change} />
          <BulkActions jobs={chosen} done={() => setSelected(new Set())} />
          {jobs.error !== null && <ErrorBox error={jobs.error} retry={() => void jobs.refetch()} />}
          {rows === undefined && jobs.error === null && (
            <Loading lines={12} label="Loading the jobs" />
          )}
          {rows?.length === 0 && filtered && (
            <Empty title="No job matches">
              <p>Change the filters or search for something else.</p>
            </Empty>
          )}
          {rows !== undefined && rows.length > 0 && (
            <JobsTable
              jobs={rows}
              search={search}
              change={change}
              selected={selected}
              select={setSelected}
              hasMore={jobs.hasNextPage}
              loadMore={() => {
                if (!jobs.isFetchingNextPage) void jobs.fetchNextPage();
              }}
            />
          )}
        </section>
      </div>
    </>
  );
}

type SummaryData = Awaited<ReturnType<NonNullable<typeof summaryQuery.queryFn>>>;

function Summary({ data }: { data?: Awaited<SummaryData> }) {
  const phases = data?.phases ?? {};
  const running = (phases.training ?? 0) + (phases.recovering ?? 0);
  return (
    <Facts
      facts={[
        {
          value: data === undefined ? "–" : integer(running),
          label: `running, ${integer(phases.waiting ?? 0)} waiting`,
        },
        {
          value: money(data?.per_hour),
          label: `an hour now; ${money(data?.on_demand_per_hour)} on demand`,
        },
        { value: money(data?.month.spent), label: `this month; saved ${money(data?.month.saved)}` },
        {
          value: data === undefined ? "–" : integer(data.today.evictions),
          label: `evictions today, ${integer(data?.today.lost_steps ?? 0)} steps repeated`,
        },
      ]}
    />
  );
}
