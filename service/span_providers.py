"""OpenTelemetry's tracer providers, one for each part of Rekindle that has spans.

Apart from ``telemetry``, because the SDK is imported only where traces are exported.
"""

from collections.abc import Mapping

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from service.tracing import Component, next_ids


class DerivedIds(RandomIdGenerator):
    """Uses the ids that ``tracing`` has derived for a span, else random ones."""

    def generate_span_id(self) -> int:
        """Return the derived id of the span."""
        ids = next_ids.get()
        return ids[1] if ids else super().generate_span_id()

    def generate_trace_id(self) -> int:
        """Return the id of a trace; called for spans without a parent only."""
        ids = next_ids.get()
        return ids[0] if ids else super().generate_trace_id()


def make(processor: SpanProcessor) -> Mapping[Component, TracerProvider]:
    """Return providers whose spans all go to ``processor``."""
    providers = {}
    for component in Component:
        resource = Resource.create({SERVICE_NAME: f"rekindle-{component}"})
        provider = TracerProvider(resource=resource, id_generator=DerivedIds())
        provider.add_span_processor(processor)
        providers[component] = provider
    return providers
