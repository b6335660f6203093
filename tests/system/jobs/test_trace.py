"""A job whose machine is evicted is one trace over OTLP, on the whole product.

`.venv/bin/pytest tests/system/jobs/test_trace.py -m long`: some minutes.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service import tracing
from tests import waiting
from tests.served import served
from tests.system.conftest import opened
from tests.system.jobs.test_tracked import evict
from tests.system.product import Product


@dataclass
class Collector:
    """Takes spans over OTLP/HTTP; keeps them with the service that they name."""

    spans: list[tuple[str, Span]] = field(default_factory=list)

    def app(self) -> Starlette:
        """Return the collector as an app."""
        return Starlette(routes=[Route("/v1/traces", self._take, methods=["POST"])])

    async def _take(self, request: Request) -> Response:
        exported = ExportTraceServiceRequest.FromString(await request.body())
        for group in exported.resource_spans:
            attributes = {a.key: a.value.string_value for a in group.resource.attributes}
            spans = [span for scope in group.scope_spans for span in scope.spans]
            self.spans += [(attributes["service.name"], span) for span in spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return Response(answer, media_type="application/x-protobuf")

    def of_job(self, job_id: str) -> list[tuple[str, Span]]:
        """Return the spans of the job's trace, each with its service."""
        trace = tracing.job_span(job_id).trace_id.to_bytes(16, "big")
        return [(service, span) for service, span in self.spans if span.trace_id == trace]


@pytest.fixture
async def collector() -> Collector:
    return Collector()


@pytest.fixture
async def product(tmp_path: Path, collector: Collector) -> AsyncIterator[Product]:
    async with (
        served(collector.app()) as url,
        opened(
            tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY="500"
        ) as local_product,
    ):
        yield local_product


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_an_evicted_job_is_one_trace(product: Product, collector: Collector) -> None:
    job_id = await product.submit(3)
    await evict(product, job_id)
    job = await product.finished(job_id)

    async def ended() -> int:  # an attempt's span comes when its machines are gone
        return sum(span.name in ("job", "attempt") for _, span in collector.of_job(job_id))

    await waiting.until(ended, lambda n: n > job["attempts"]["count"], deadline=120)

    spans = collector.of_job(job_id)
    ids = {span.span_id for _, span in spans}
    names = {(service, span.name) for service, span in spans}
    assert job["status"] == "succeeded"
    assert [span.name for _, span in spans if not span.parent_span_id] == ["job"]
    assert [s.name for _, s in spans if s.parent_span_id and s.parent_span_id not in ids] == []
    assert len(ids) == len(spans), "no span was exported twice"
    assert sum(span.name == "attempt" for _, span in spans) == job["attempts"]["count"] > 1
    assert {
        ("rekindle-service", "submit"),
        ("rekindle-service", "reconcile CreateScaleSet"),
        ("rekindle-service", "allocate"),
        ("rekindle-service", "delete"),
        ("rekindle-node", "fetch_inputs"),
        ("rekindle-trainer", "load_model"),
        ("rekindle-trainer", "train"),
    } <= names
