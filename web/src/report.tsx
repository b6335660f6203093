/** A job as one file that opens without a network: `rekindle report` fills in the data. */

import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import type { Schemas } from "./api/client";
import { attemptsQuery, eventsQuery, metricsQuery } from "./api/queries";
import { Panel } from "./components/panel";
import { JobTag } from "./components/tag";
import { absolute } from "./format";
import { AttemptsPanel } from "./pages/job/attempts-panel";
import { Configuration, DeepSpeedJson } from "./pages/job/configuration-tab";
import { CostPanel } from "./pages/job/cost-panel";
import { CurvesPanel } from "./pages/job/curves-panel";
import { DataFacts } from "./pages/job/data-facts";
import { ProgressPanel } from "./pages/job/progress-panel";
import { nameOf } from "./pages/job/use-live-job";
import { WhyPanel } from "./pages/job/why-panel";
import { applyTheme } from "./theme";
import "./styles/base.css";

interface ReportData {
  made_at: number;
  job: Schemas["Job"];
  attempts: Schemas["AttemptList"];
  events: Schemas["EventList"];
  metrics: Schemas["MetricList"];
  card: string | null; // the model's README.md
}

function Report({ data }: { data: ReportData }) {
  const { job, card } = data;
  return (
    <main style={{ maxWidth: 1360, margin: "0 auto", padding: "20px 24px 48px" }}>
      <p className="row">
        <span className="muted">Rekindle report, {absolute(data.made_at)}</span>
      </p>
      <div className="row">
        <h1>{nameOf(job)}</h1>
        <JobTag job={job} />
        <span className="muted">{job.id}</span>
      </div>
      <p>{job.status_reason.message}</p>
      <div className="grid">
        <ProgressPanel job={job} />
        <CostPanel job={job} />
        <AttemptsPanel job={job} />
        <CurvesPanel job={job} />
        <WhyPanel job={job} />
        <Panel title="Data">
          <DataFacts job={job} />
        </Panel>
        <Panel title="Configuration">
          <Configuration job={job} />
          <DeepSpeedJson job={job} />
        </Panel>
        {card !== null && (
          <Panel title="Model card">
            <pre style={{ whiteSpace: "pre-wrap", margin: 0 }}>{card}</pre>
          </Panel>
        )}
      </div>
    </main>
  );
}

const told = document.getElementById("report-data")?.textContent ?? "null";
const data = JSON.parse(told) as ReportData | null;
const root = document.getElementById("root");
applyTheme();
if (data !== null && root !== null) {
  // The panels find their data where they would ask the API for it, and never ask.
  const client = new QueryClient({
    defaultOptions: { queries: { staleTime: Number.POSITIVE_INFINITY, retry: false } },
  });
  client.setQueryData(attemptsQuery(data.job.id).queryKey, data.attempts);
  client.setQueryData(eventsQuery(data.job.id).queryKey, data.events);
  client.setQueryData(metricsQuery(data.job.id).queryKey, data.metrics);
  document.title = `${nameOf(data.job)} · Rekindle report`;
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <Report data={data} />
      </QueryClientProvider>
    </StrictMode>,
  );
}
