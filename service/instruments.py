"""Every Prometheus metric of the service, declared once.

Metrics of a process (``MetricSource.PROCESS``) are rates: each process counts its own work, and
Prometheus sums the processes. Metrics of the database (``MetricSource.DATABASE``) are state, read
from PostgreSQL at scrape time: every replica returns the same value, and a restart loses nothing;
dashboards take their maximum. ``docs/metrics.md`` is made from ``DECLARED``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from service.domain.states import JOB_TERMINAL, CapacityType

PROCESS = CollectorRegistry()  # metrics of this process, for /metrics
_MAX_CHILDREN = 4096  # per metric: label values are few by design
_FAST = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_SLOW = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 3600.0, 14400.0, 86400.0)
_RATIO = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_BOUGHT = ("region", "vm_size", "capacity_type")


class MetricType(StrEnum):
    """Metric types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSource(StrEnum):
    """Where the value of a metric comes from."""

    PROCESS = "process"
    DATABASE = "database"


@dataclass(frozen=True)
class Instrument:
    """One metric. ``labels`` are few and bounded: no id of a job, node or project."""

    name: str
    kind: MetricType
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    source: MetricSource = MetricSource.PROCESS
    known_values: tuple[str, ...] = ()  # values of the only label, shown as 0 from the start

    def register(self) -> None:
        """Show the metric in ``PROCESS`` before its first count, as 0 for known labels."""
        if self.labels:
            self._metric.describe()
            for value in self.known_values:
                self._child(value)
        else:
            self._child()

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """Count up, or set a gauge higher."""
        self._child(*labels).inc(amount)

    def observe(self, *labels: str, value: float) -> None:
        """Record a measurement; clocks of two machines may give a negative time."""
        self._child(*labels).observe(max(value, 0.0))

    def set(self, *labels: str, value: float) -> None:
        """Set a gauge."""
        self._child(*labels).set(value)

    @cached_property
    def _child(self) -> Any:  # noqa: ANN401 - of the metric's own type
        return lru_cache(_MAX_CHILDREN)(self._labelled)

    def _labelled(self, *labels: str) -> Any:  # noqa: ANN401 - as above
        return self._metric.labels(*labels) if labels else self._metric

    @cached_property
    def _metric(self) -> Counter | Gauge | Histogram:
        arguments = (self.name, self.help, self.labels)
        if self.kind is MetricType.HISTOGRAM:
            return Histogram(*arguments, registry=PROCESS, buckets=self.buckets)
        return (Counter if self.kind is MetricType.COUNTER else Gauge)(*arguments, registry=PROCESS)


DECLARED: dict[str, Instrument] = {}  # by name, in the order of docs/metrics.md


def _declare(instrument: Instrument) -> Instrument:
    DECLARED[instrument.name] = instrument
    return instrument


def _counter(name: str, text: str, *labels: str, known: Iterable[str] = ()) -> Instrument:
    return _declare(Instrument(name, MetricType.COUNTER, text, labels, known_values=tuple(known)))


def _gauge(name: str, text: str, *labels: str) -> Instrument:
    return _declare(Instrument(name, MetricType.GAUGE, text, labels))


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Instrument:
    return _declare(Instrument(name, MetricType.HISTOGRAM, text, labels, buckets))


def _state(name: str, text: str, *labels: str) -> Instrument:
    return _declare(Instrument(name, MetricType.GAUGE, text, labels, source=MetricSource.DATABASE))


# --- what this process does -----------------------------------------------------------------------
HTTP_REQUEST = _histogram(
    "rekindle_http_request_seconds",
    "Time from a request's head to the end of its answer. operation: its id in openapi.json; of"
    " nodes: register, heartbeat, directive (a long poll), boot. status: 2xx, 4xx, 5xx, or none.",
    *("operation", "status"),
    buckets=_FAST,
)
RECONCILE_STEP = _histogram(
    "rekindle_reconcile_step_seconds",
    "Time of one step or one round of a reconciler loop. result: ok or failed.",
    *("loop", "result"),
    buckets=_FAST,
)
EVENT_LOOP_LAG = _histogram(
    "rekindle_event_loop_lag_seconds",
    "Delay of a timer of the process's event loop, measured twice a second.",
    buckets=_FAST,
)
LEASE_LAG = _histogram(
    "rekindle_lease_lag_seconds",
    "Time from the moment a row was due until this process leased it. kind: jobs or attempts.",
    "kind",
    buckets=_FAST,
)
LEASES_LOST = _counter(
    "rekindle_leases_lost_total",
    "Steps whose lease another process took over before they were written.",
    "kind",
)
AZURE_CALL = _histogram(
    "rekindle_azure_call_seconds",
    "Time of one operation at Azure. result: ok, or the kind of error, for example Throttled.",
    *("operation", "region", "result"),
    buckets=_FAST,
)
AZURE_DEFERRED = _counter(
    "rekindle_azure_deferred_total",
    "Operations that the service deferred. reason: rate_limit, circuit or concurrency.",
    *("operation", "region", "reason"),
)
AZURE_REMAINING = _gauge(
    "rekindle_azure_remaining_requests",
    "Requests that Azure's last answer said are left of a limit of the subscription and region.",
    *("region", "limit"),
)
JOB_STATE = _histogram(
    "rekindle_job_state_seconds",
    "Time that a job spent in a state which it has left.",
    "state",
    buckets=_SLOW,
)
JOBS_FINISHED = _counter(
    "rekindle_jobs_finished_total",
    "Jobs that ended. state: succeeded, failed, cancelled.",
    "state",
    known=sorted(JOB_TERMINAL),
)
QUEUE_WAIT = _histogram(
    "rekindle_queue_wait_seconds",
    "Time that an admitted job had waited in the queue.",
    "priority",
    buckets=_SLOW,
)
RECOVERY = _histogram(
    "rekindle_recovery_seconds",
    "Time from the end of an attempt until the job's next attempt trains.",
    buckets=_SLOW,
)
ATTEMPT_STATE = _histogram(
    "rekindle_attempt_state_seconds",
    "Time that an attempt spent in a state which it has left.",
    *("state", "capacity_type"),
    buckets=_SLOW,
)
ATTEMPT_OUTCOMES = _counter(
    "rekindle_attempt_outcomes_total",
    "Attempts whose outcome became known.",
    *("outcome", *_BOUGHT),
)
ATTEMPT_PHASE = _histogram(
    "rekindle_attempt_phase_seconds",
    "Time of one phase of an attempt that has ended, from its timeline.",
    "phase",
    buckets=_SLOW,
)
LOST_STEPS = _counter("rekindle_lost_steps_total", "Training steps that were repeated.")
LOST_TIME = _counter(
    "rekindle_lost_machine_seconds_total",
    "Machine time that was spent on steps which were repeated.",
    "capacity_type",
    known=CapacityType,
)
PAID = _counter(
    "rekindle_paid_machine_seconds_total",
    "Machine time of attempts that have ended, as billed.",
    "capacity_type",
    known=CapacityType,
)
TRAINED = _counter(
    "rekindle_training_machine_seconds_total",
    "Machine time of attempts that have ended in which steps were trained, lost ones included.",
    "capacity_type",
    known=CapacityType,
)
SPENT = _counter(
    "rekindle_spent_dollars_total",
    "Cost of the machines of attempts that ended.",
    "capacity_type",
    known=CapacityType,
)
NODES_UNHEALTHY = _counter(
    "rekindle_unhealthy_nodes_total", "Machines that their node reported as broken."
)
GPU_UTILIZATION = _histogram(
    "rekindle_gpu_utilization_ratio",
    "Share of time in which a GPU was busy, one measurement per GPU and minute.",
    *("region", "vm_size"),
    buckets=_RATIO,
)
GPU_MEMORY = _histogram(
    "rekindle_gpu_memory_used_ratio",
    "Share of a GPU's memory in use, one measurement per GPU and minute.",
    *("region", "vm_size"),
    buckets=_RATIO,
)
GPU_ECC = _counter(
    "rekindle_gpu_ecc_errors_total",
    "ECC errors of GPUs' memory. kind: corrected or uncorrected.",
    *("kind", "region", "vm_size"),
)
GPU_XID = _counter(
    "rekindle_gpu_xid_errors_total",
    "Xid errors that the driver logged. kind: fatal (broken hardware) or other.",
    *("kind", "region", "vm_size"),
)
LOG_EVENTS = _counter(
    "rekindle_log_events_total",
    "Log lines of level warning and error. Every error has a section in the runbook.",
    *("level", "event"),
)

# --- what the database says -----------------------------------------------------------------------
_state("rekindle_jobs", "Jobs that have not ended.", "state")
_state("rekindle_queue_jobs", "Jobs that wait for admission.", "priority")
_state("rekindle_queue_oldest_wait_seconds", "Waiting time of the job that has waited the longest.")
_state("rekindle_attempts", "Attempts that have not ended.", "state", "engine", *_BOUGHT)
_state(
    "rekindle_attempt_oldest_seconds",
    "Time that the oldest attempt in a state has been in it.",
    "state",
)
_state("rekindle_machines", "Machines that cost money.", *_BOUGHT)
_state("rekindle_dollars_per_hour", "Price of all machines that cost money.", *_BOUGHT)
_state("rekindle_on_demand_dollars_per_hour", "What the same machines cost on demand.", *_BOUGHT)
_state(
    "rekindle_nodes",
    "Nodes of attempts that start or train. status: their phase, or evicting, unhealthy,"
    " silent (no heartbeat for a minute).",
    "status",
)
_state(
    "rekindle_due_lag_seconds",
    "How long the oldest row has been due that no process has leased. kind: jobs or attempts.",
    "kind",
)
_state("rekindle_scale_sets", "Scale sets in the last list from Azure.", "phase")
_state("rekindle_scale_sets_list_age_seconds", "Age of that list.")
_state(
    "rekindle_azure_circuit_open",
    "1 while the circuit of a region is open: the service sends no requests to it.",
    "region",
)
STATE = tuple(one for one in DECLARED.values() if one.source is MetricSource.DATABASE)

disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's
ProcessCollector(registry=PROCESS)
for _one in DECLARED.values():
    if _one.source is MetricSource.PROCESS:
        _one.register()
