import { Copyable } from "../../components/copyable";
import { bytes, integer, money } from "../../format";
import styles from "./detail-tabs.module.css";
import { curlCommand, submitCommand } from "./repeat-command";
import type { Job } from "./use-live-job";

/** The configuration, what DeepSpeed gets of it, and the command that repeats the job. */
export function ConfigurationTab({ job }: { job: Job }) {
  const now = Date.now() / 1000;
  return (
    <>
      <Configuration job={job} />
      <DeepSpeedJson job={job} />
      <Copyable title="Command that repeats the job" text={submitCommand(job, now)} />
      <Copyable title="The same with curl" text={curlCommand(job, now)} />
    </>
  );
}

export function DeepSpeedJson({ job }: { job: Job }) {
  return (
    <Copyable
      title={`DeepSpeed JSON for ${processes(job.deepspeed.world_size)}`}
      text={JSON.stringify(job.deepspeed.config, null, 2)}
    />
  );
}

function processes(count: number): string {
  return count === 1 ? "1 process" : `${integer(count)} processes`;
}

/** Whether the DeepSpeed JSON says stage 2 where the plan says 1 (`trainer/contract/deepspeed_config.py`). */
function runsAsStage2({ plan, deepspeed }: Job): boolean {
  const zero = deepspeed.config.zero_optimization as { stage?: number } | undefined;
  return plan.zero_stage === 1 && zero?.stage === 2;
}

/** What was asked for, and what the planner made of it. */
export function Configuration({ job }: { job: Job }) {
  const { plan, infrastructure } = job;
  const { options: _options, alternatives: _alternatives, rejected: _rejected, ...resolved } = plan;
  return (
    <>
      <dl className={styles.pairs}>
        <Pair name="Model">{job.model}</Pair>
        <Pair name="Method">{job.method.type}</Pair>
        <Pair name="Place">
          {plan.vm_size} in {plan.region}, {plan.capacity_type === "spot" ? "Spot" : "on demand"},{" "}
          {plan.engine === "azureml" ? "Azure ML" : "scale set"}
        </Pair>
        <Pair name="Layout">
          {plan.nodes} × {processes(plan.processes_per_node)}, ZeRO stage {plan.zero_stage},
          micro-batch {plan.micro_batch}, accumulation {plan.accumulation}
          {runsAsStage2(job) &&
            ". In 16 bits, stage 1 runs as DeepSpeed's stage 2, which sums gradients in fp32."}
        </Pair>
        <Pair name="Memory">{bytes(plan.memory.needed)} for each GPU, by the plan</Pair>
        <Pair name="Price">
          {money(plan.hourly)} an hour for each machine; on demand {money(plan.on_demand_hourly)}
        </Pair>
        <Pair name="Limits">
          {infrastructure.budget === null
            ? "no budget"
            : `budget ${money(infrastructure.budget.amount)}`}
          , priority {infrastructure.priority}
          {infrastructure.regions !== null && `, only ${infrastructure.regions.join(", ")}`}
        </Pair>
        <Pair name="Why this place">{plan.why}</Pair>
        {plan.warnings.map((warning) => (
          <Pair key={warning} name="Warning">
            {warning}
          </Pair>
        ))}
      </dl>
      <h3 className={styles.heading}>Resolved configuration</h3>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls is reached by keyboard */}
      <pre className={styles.json} tabIndex={0}>
        {JSON.stringify({ method: job.method, infrastructure, plan: resolved }, null, 2)}
      </pre>
    </>
  );
}

function Pair({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}
