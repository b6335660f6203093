"""Log lines: one JSON object each, with the ids of the span under way, and counted by event."""

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from service import telemetry
from service.instruments import PROCESS


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[StringIO]:
    """Yield what a process writes to stderr; restore the root logger afterwards."""
    root, names = logging.getLogger(), {n: logging.getLevelName(n) for n in (10, 20, 30, 40, 50)}
    handlers, level, written = list(root.handlers), root.level, StringIO()
    monkeypatch.setattr("sys.stderr", written)
    telemetry.set_up()
    yield written
    root.handlers[:] = handlers
    root.setLevel(level)
    for number, name in names.items():
        logging.addLevelName(number, name)


def counted(level: str, event: str) -> float:
    labels = {"level": level, "event": event}
    return PROCESS.get_sample_value("rekindle_log_events_total", labels) or 0.0


def test_a_line_has_its_time_level_event_logger_and_extras(lines: StringIO) -> None:
    logging.getLogger("service.x").info("job.looked_at", extra={"job": "ftjob-1"})

    line = json.loads(lines.getvalue())
    assert line.pop("at") > 0
    assert line == {
        "level": "info",
        "event": "job.looked_at",
        "logger": "service.x",
        "job": "ftjob-1",
    }


def test_an_exception_is_in_the_member_error(lines: StringIO) -> None:
    try:
        int("no such thing")
    except ValueError:
        logging.getLogger("service.x").exception("loop.failed")

    line = json.loads(lines.getvalue())
    assert (line["level"], line["event"]) == ("error", "loop.failed")
    assert "no such thing" in line["error"]


def test_warnings_and_errors_are_counted_by_event_and_sentences_of_others_are_not(
    lines: StringIO,
) -> None:
    before = counted("error", "leak.untracked"), counted("warning", "other")
    logging.getLogger("service.x").error("leak.untracked")
    logging.getLogger("asyncio").warning("a sentence about %s", "something")

    assert counted("error", "leak.untracked") == before[0] + 1
    assert counted("warning", "other") == before[1] + 1
    assert "a sentence about something" in lines.getvalue()


def test_a_line_within_a_span_has_its_ids(lines: StringIO) -> None:
    span = TracerProvider().get_tracer("tests").start_span("work")
    with trace.use_span(span):
        logging.getLogger("service.x").info("job.looked_at")

    line = json.loads(lines.getvalue())
    assert line["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert line["span_id"] == f"{span.get_span_context().span_id:016x}"


def test_traces_are_exported_only_where_an_endpoint_is_set() -> None:
    assert not telemetry.is_export_enabled({"OTEL_SERVICE_NAME": "x"})
    assert telemetry.is_export_enabled({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})
