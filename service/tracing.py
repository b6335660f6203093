"""Record traces of jobs, once ``install`` has set OpenTelemetry providers for their spans.

Ids are derived from the ids of job and attempt, so every process can add to a job's one trace, and
a span that is recorded twice is the same span. Measurements of nodes and trainers reach
the service with their heartbeats and are exported here: a node needs neither a collector nor
credentials for one (ADR 0077).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags, TracerProvider

_NAME = "rekindle"
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
next_ids: ContextVar[tuple[int, int] | None] = ContextVar("next_ids", default=None)


class Component(StrEnum):
    """The part of Rekindle that a span is of; its ``service.name`` is ``rekindle-`` and this."""

    SERVICE = "service"
    NODE = "node"
    TRAINER = "trainer"


@dataclass(frozen=True, kw_only=True)
class FinishedPeriod:
    """Name and duration of a finished period, to be recorded as a span."""

    name: str
    started_at: datetime
    ended_at: datetime
    attributes: Mapping[str, str | int | float]
    component: Component = Component.SERVICE


_providers: dict[Component, TracerProvider] = {}


def install(providers: Mapping[Component, TracerProvider]) -> None:
    """Send spans to these processors from now on; without any, record none."""
    _providers.clear()
    _providers.update(providers)


def is_on() -> bool:
    """Return whether spans are recorded."""
    return bool(_providers)


def provider() -> TracerProvider | None:
    """Return where spans of the service go, or None if they are not recorded."""
    return _providers.get(Component.SERVICE)


def job_span(job_id: str) -> SpanContext:
    """Return the root span of the job's trace."""
    digest = sha256(f"rekindle:{job_id}".encode()).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:16]),
        span_id=int.from_bytes(digest[16:24]),
        is_remote=True,
        trace_flags=_SAMPLED,
    )


def attempt_span(job_id: str, attempt_id: str) -> SpanContext:
    """Return the attempt's span, in its job's trace."""
    return _child_span(job_span(job_id), attempt_id)


def traceparent(job_id: str, attempt_id: str) -> str:
    """Return the W3C trace context for the nodes of an attempt; "" while tracing is off."""
    if not is_on():
        return ""
    context = attempt_span(job_id, attempt_id)
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-01"


@contextmanager
def step(name: str, job_id: str, attempt_id: str) -> Iterator[None]:
    """Record a reconciler's step for an attempt; calls to Azure within it are its children."""
    if not is_on():
        yield
        return
    parent = trace.set_span_in_context(NonRecordingSpan(attempt_span(job_id, attempt_id)))
    tracer = trace.get_tracer(_NAME, tracer_provider=_providers[Component.SERVICE])
    with tracer.start_as_current_span(name, context=parent):
        yield


def record_submission(job_id: str, started_at: datetime, ended_at: datetime) -> None:
    """Link the request that created the job with the job's trace, each with the other."""
    if not is_on():
        return
    request = trace.get_current_span()
    request.add_link(job_span(job_id), {"rekindle.job": job_id})
    period = FinishedPeriod(name="submit", started_at=started_at, ended_at=ended_at, attributes={})
    links = [Link(request.get_span_context())]
    _record(period, _child_span(job_span(job_id), "submit"), job_span(job_id), links)


def record_job(job_id: str, period: FinishedPeriod) -> None:
    """Record the root span of a job that is over."""
    if is_on():
        _record(period, job_span(job_id), None)


def record_attempt(
    job_id: str, attempt_id: str, period: FinishedPeriod, phases: list[FinishedPeriod]
) -> None:
    """Record the span of an attempt that is over, and those of its phases."""
    if not is_on():
        return
    ids = attempt_span(job_id, attempt_id)
    _record(period, ids, job_span(job_id))
    for number, phase in enumerate(phases):
        _record(phase, _child_span(ids, f"{number}:{phase.name}"), ids)


def _child_span(parent: SpanContext, name: str) -> SpanContext:
    digest = sha256(f"{parent.span_id:016x}:{name}".encode()).digest()
    return SpanContext(
        trace_id=parent.trace_id,
        span_id=int.from_bytes(digest[:8]),
        is_remote=True,
        trace_flags=_SAMPLED,
    )


def _record(
    period: FinishedPeriod,
    context: SpanContext,
    parent: SpanContext | None,
    links: list[Link] | None = None,
) -> None:
    parent_context = trace.set_span_in_context(
        NonRecordingSpan(parent or trace.INVALID_SPAN_CONTEXT)
    )
    tracer = trace.get_tracer(_NAME, tracer_provider=_providers[period.component])
    token = next_ids.set((context.trace_id, context.span_id))
    try:
        span = tracer.start_span(
            period.name,
            context=parent_context,
            links=links,
            attributes=dict(period.attributes),
            start_time=_nanoseconds(period.started_at),
        )
    finally:
        next_ids.reset(token)
    span.end(_nanoseconds(max(period.ended_at, period.started_at)))


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1e6) * 1000
