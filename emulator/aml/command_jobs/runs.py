"""What jobs do as time passes: wait for nodes, run on them, start again after an eviction, end.

A job whose nodes were evicted is restarted from its beginning, never resumed, under the same name.
"""

from emulator.aml import nodes
from emulator.aml.assets import JOB, amend, lookup, of_type, private, properties
from emulator.aml.command_jobs import job_orders
from emulator.aml.nodes import ClusterNode
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

ENDED = ("Completed", "Failed", "Canceled")
BEFORE = {"Starting": "Preparing", "Preparing": "Queued"}
LOST = ("Queued", "Preempted")  # what a job ends its nodes' work for that lost one of them
WEEK = 7 * 86400.0  # seconds that a job can have on low-priority nodes (how-to-manage-quotas.md)
PREEMPTED = (
    "AzureMLCompute job failed. PreemptionError: Nodes of this job got pre-empted. Check if the "
    "run has failed or restarted. Reason: Received pre-emption warning signal"
)


def advance(fabric: Fabric, now: float) -> bool:
    """Carry every job one step forward, the oldest first."""
    rows = [job for job in of_type(fabric, JOB) if properties(job)["status"] not in ENDED]
    rows.sort(key=lambda job: job.created_at)
    changed = [_advance(fabric, job, now) for job in rows]  # every one, so not within any()
    return any(changed)


def request_cancel(fabric: Fabric, job: ResourceRow, now: float) -> None:
    """Let it end: at once where nothing runs, and else when its processes did."""
    if private(job)["nodes"]:
        amend(fabric, job, {"status": "CancelRequested"})
    elif properties(job)["status"] not in ENDED:
        _end(fabric, job, "Canceled", now)


def _advance(fabric: Fabric, job: ResourceRow, now: float) -> bool:
    status = properties(job)["status"]
    if status == "Finalizing":
        _finish(fabric, job, "Completed", now)
        return True
    if status in BEFORE and not private(job)["nodes"]:
        amend(fabric, job, {"status": BEFORE[status]})
        return True
    compute = lookup(fabric, private(job)["compute"])
    if compute is None or compute.provisioning_state == "Deleting":
        return _without_cluster(fabric, job, now)
    if status == "Queued":
        return _start(fabric, job, compute, now)
    return _watch(fabric, job, compute, now)


def _without_cluster(fabric: Fabric, job: ResourceRow, now: float) -> bool:
    """End a job whose cluster is gone or going."""
    if properties(job)["status"] == "CancelRequested":
        _end(fabric, job, "Canceled", now)
    elif properties(job)["status"] == "Queued" and private(job)["attempt"] == 1:
        name = private(job)["compute"].rpartition("/")[2]
        _fail(fabric, job, f"AzureMLCompute cluster {name} does not exist", now)
    else:
        _fail(fabric, job, PREEMPTED, now)
    return True


def _start(fabric: Fabric, job: ResourceRow, compute: ResourceRow, now: float) -> bool:
    """Take nodes, if there are enough; they get orders in the next step, when this is written."""
    facts, count = private(job), nodes.needed_node_count(job)
    most = int(properties(compute)["properties"]["scaleSettings"]["maxNodeCount"])
    if count > most and facts["attempt"] > 1:
        _fail(fabric, job, PREEMPTED, now)
        return True
    free = nodes.free_nodes(fabric, compute)
    if len(free) < count:
        return False
    instance_ids = [node.instance.instance_id for node in free[:count]]
    started_at = facts["started_at"] or now
    amend(fabric, job, {"status": "Starting"}, nodes=instance_ids, started_at=started_at)
    return True


def _watch(fabric: Fabric, job: ResourceRow, compute: ResourceRow, now: float) -> bool:
    """See how a job that holds nodes is doing, and end it if it is to end."""
    before = private(job)["ending"]
    job_nodes = [n for n in nodes.nodes(fabric, compute) if n.run == job.name]
    living = [n for n in job_nodes if n.is_present]
    old_status = properties(job)["status"]
    status = _status_when_heard(job, now)
    if len(living) == len(private(job)["nodes"]) and not before:
        job_orders.write(fabric, job, living)
        if status == "Starting" and job_orders.has_begun(fabric, job, living):
            status = "Running"
    codes = job_orders.exit_codes(fabric, job, living)
    cancelled = status == "CancelRequested"  # a restart that began or not
    out_of_time = _out_of_time(job, compute, now)
    ending = "Canceled" if cancelled or out_of_time else before or _verdict(job, living, codes)
    unpulled = job_orders.refused_pull(fabric, job, living)
    code = private(job)["exit_code"] if before else next(filter(None, codes), 0)
    observed = {"ending": ending, "unpulled": unpulled, "exit_code": code}
    if status != old_status or any(
        private(job).get(name) != value for name, value in observed.items()
    ):
        job = amend(fabric, job, {"status": status}, **observed)
    if ending == "":
        return bool(status != old_status)
    if ending != "Finalizing":
        job_orders.end(fabric, job, living, "kill" if ending in LOST else "cancel")
        if None in codes:
            return bool(before != ending)
    _finish(fabric, job, ending, now)
    return True


def _status_when_heard(job: ResourceRow, now: float) -> str:
    """Return the status, Running again once the job is no longer silent."""
    status = str(properties(job)["status"])
    is_heard = status == "NotResponding" and now >= private(job)["silent_until"]
    return "Running" if is_heard else status


def _verdict(job: ResourceRow, living: list[ClusterNode], codes: list[int | None]) -> str:
    """Return the end of a running job; empty while it may go on."""
    facts = private(job)
    is_preempted = any(node.state == "preempted" for node in living)
    failed = any(codes)
    if len(living) < len(facts["nodes"]) or (failed and is_preempted):
        return str(facts["after_preemption"])
    if failed:
        return "Failed"
    return "Finalizing" if codes and None not in codes else ""


def _out_of_time(job: ResourceRow, compute: ResourceRow, now: float) -> bool:
    spot = properties(compute)["properties"]["vmPriority"] == "LowPriority"
    limits = [x for x in (private(job)["seconds"], WEEK if spot else None) if x is not None]
    return bool(limits) and now - float(private(job)["started_at"]) >= min(limits)


def _finish(fabric: Fabric, job: ResourceRow, status: str, now: float) -> None:
    """Let go of the nodes; Queued begins again from the beginning."""
    facts = private(job)
    attempt = facts["attempt"] + (status == "Queued")
    job = amend(fabric, job, nodes=[], ending="", attempt=attempt)
    if status == "Preempted":
        _fail(fabric, job, PREEMPTED, now)
    elif status == "Failed":
        exited = f"Execution failed. User process exited with status code {facts['exit_code']}."
        refusal = facts["unpulled"]
        _fail(fabric, job, f"Failed to pull Docker image. {refusal}" if refusal else exited, now)
    elif status in ENDED:
        _end(fabric, job, status, now)
    else:
        amend(fabric, job, {"status": status})


def _fail(fabric: Fabric, job: ResourceRow, message: str, now: float) -> None:
    job = amend(fabric, job, error={"code": "UserError", "message": message})
    _end(fabric, job, "Failed", now)


def _end(fabric: Fabric, job: ResourceRow, status: str, now: float) -> None:
    amend(fabric, job, {"status": status}, nodes=[], ended_at=now)
