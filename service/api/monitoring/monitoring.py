"""/metrics, for Prometheus: the activity of this process, and the state of the database.

It shows costs and all projects, so only keys of the operators' project may read it, with the scope
``read`` or more.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from contract.choices import Priority
from service.api.deps import CallerDep, PartsDep
from service.db.monitoring import state_metrics
from service.db.monitoring.state_metrics import MetricSample
from service.db.projects.keys import Caller
from service.domain.states import JOB_TERMINAL, JobState
from service.instruments import PROCESS, STATE
from service.operations.projects import operators

router = APIRouter(include_in_schema=False)
_ZEROS = [
    *(MetricSample("rekindle_jobs", [s], 0.0) for s in JobState if s not in JOB_TERMINAL),
    *(MetricSample("rekindle_queue_jobs", [p], 0.0) for p in Priority),
]


async def get_operator(parts: PartsDep, caller: CallerDep) -> Caller:
    """Return the caller, whose key must belong to the operators' project, with any scope."""
    await operators.require_project(parts.engine, caller, parts.operator_project)
    return caller


@router.get("/metrics")
async def get_metrics(
    parts: PartsDep, caller: Annotated[Caller, Depends(get_operator)]
) -> Response:
    """Return everything that ``instruments`` declares, in Prometheus's text format."""
    async with parts.reading.connect() as conn:
        state = await state_metrics.read_samples(conn, parts.now())
    scraped = CollectorRegistry()
    scraped.register(_State([*_ZEROS, *state]))
    body = generate_latest(PROCESS) + generate_latest(scraped)
    return Response(body, media_type=CONTENT_TYPE_LATEST)


class _State(Collector):
    """Samples as Prometheus's metric families."""

    def __init__(self, samples: Iterable[MetricSample]) -> None:
        self._by_name: defaultdict[str, dict[Sequence[str], float]] = defaultdict(dict)
        for sample in samples:
            self._by_name[sample.name][tuple(sample.labels)] = sample.value

    def collect(self) -> Iterator[Metric]:
        """Yield every declared family, in order."""
        for gauge in STATE:
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in self._by_name[gauge.name].items():
                family.add_metric(list(labels), value)
            yield family
