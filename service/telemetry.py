"""Logs and traces of the process: JSON lines on stderr, and spans to an OTLP endpoint.

OpenTelemetry's own environment variables set the endpoint, the headers and the sampling
(docs/monitoring.md); without an endpoint there are no spans.
"""

import logging
import sys
from collections.abc import Mapping

from opentelemetry import trace
from pythonjsonlogger.json import JsonFormatter

from service import tracing
from service.instruments import LOG_EVENTS
from service.tracing import Component

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_MEMBERS = {
    "created": "at",
    "levelname": "level",
    "message": "event",
    "name": "logger",
    "exc_info": "error",
}


class _CountingFilter(logging.Filter):
    """Log filter that counts warnings and errors by event, and adds the current span's ids."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Count the record, add the span's ids, and let it pass."""
        if record.levelno >= logging.WARNING:
            event = str(record.msg)
            is_ours = record.name.startswith("service.") and " " not in event
            LOG_EVENTS.add(record.levelname.lower(), event if is_ours else "other")
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            record.trace_id = f"{context.trace_id:032x}"
            record.span_id = f"{context.span_id:016x}"
        return True


def set_up(level: str = "INFO") -> None:
    """Send every log line of the process to stderr, from this level on."""
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
        logging.addLevelName(number, logging.getLevelName(number).lower())
    handler = logging.StreamHandler(sys.stderr)
    field_names = [name for name in _MEMBERS if name != "exc_info"]
    handler.setFormatter(JsonFormatter(field_names, rename_fields=_MEMBERS, json_default=str))
    handler.addFilter(_CountingFilter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("azure", "httpx", "uvicorn.access", "azure.core.pipeline.policies"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def is_export_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether an endpoint for traces is set."""
    return any(environment.get(name) for name in _ENDPOINTS)


def export_traces() -> None:
    """Send spans over OTLP from now on, those of Azure's SDK included."""
    from azure.core.settings import settings  # noqa: PLC0415 - takes half a second, only if wanted
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    from service import span_providers  # noqa: PLC0415

    providers = span_providers.make(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(providers[Component.SERVICE])
    tracing.install(providers)
    settings.tracing_enabled = True
