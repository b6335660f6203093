"""docs/metrics.md, from the declarations in `service/instruments.py`."""

from collections.abc import Iterator

from service.instruments import DECLARED, Instrument, MetricSource
from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "metrics.md"
_INTRO = """\
# Metrics

For operators who write dashboards and alerts: every Prometheus metric.
[Monitoring](monitoring.md) says how to scrape them.

Generated from `service/instruments.py` by `make docs`; do not edit.

Times are in seconds. No label names a job, a node or a project.
"""
_OF_PROCESS = """
## What each process does

Each process counts its own work. Add replicas up: `sum(rate(NAME[5m]))`. A restart begins at 0,
which `rate` and `increase` allow for. `process_*` are Prometheus's usual metrics of a process.
"""
_OF_DATABASE = """
## What the database says

Read from PostgreSQL at each scrape, so every replica shows the same figure. Never add replicas up:
`max without (instance) (NAME)`.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_INTRO]
    for source, head in (
        (MetricSource.PROCESS, _OF_PROCESS),
        (MetricSource.DATABASE, _OF_DATABASE),
    ):
        rows = [metric for metric in DECLARED.values() if metric.source is source]
        parts += [head, "\n", *(f"{line}\n" for line in _table(rows))]
    return "".join(parts)


def _table(rows: list[Instrument]) -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "| --- | --- | --- | --- |"
    for metric in rows:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"
