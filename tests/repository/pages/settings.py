"""docs/settings.md, from `service/settings.py`."""

from collections.abc import Iterator
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from contract.described import descriptions
from service.settings import Settings
from tests.repository.pages.markdown import code, table
from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "settings.md"
GROUPS = {  # first setting of each group
    "database_url": "Database and project quotas",
    "storage": "Storage",
    "public_url": "The service",
    "cloud": "Azure",
    "azureml_workspace": "Azure Machine Learning",
    "wandb_api_key": "Experiment trackers",
    "azure_limits_times": "Offerings, prices and plans",
    "accelerator": "Trainers",
    "requests_per_minute": "Limits of requests and files",
    "poll_seconds": "Intervals and timeouts",
    "event_days": "Retention",
}
_HEAD = """\
# Settings

For operators who configure the service: every environment variable. They are read once at start; a
change needs a restart. `python -m service.main check` tests them. [Operations](operations.md)
explains how to use them.

Generated from `service/settings.py` by `make docs`; do not edit.
"""
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def page() -> str:
    """Return the whole page."""
    return _HEAD + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    meanings = descriptions(Settings)
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        if name in GROUPS:
            yield from _group(rows)
            yield from ("", f"## {GROUPS[name]}", "")
            rows = []
        rows.append((code(f"REKINDLE_{name.upper()}"), _default(name, field), meanings[name]))
    yield from _group(rows)


def _group(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    if rows:
        yield from table(("variable", "default", "meaning"), rows)


def _default(name: str, field: FieldInfo) -> str:
    value: Any = field.default
    if field.is_required():
        return "required"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None or value == "":
        return ""
    if name.endswith("_bytes"):
        size, unit = next((s, u) for s, u in _UNITS if value % s == 0)
        return f"{value // size} {unit}"
    if isinstance(value, float):
        return code(f"{value:g}")
    return code(value if isinstance(value, str) else "{}" if not _plain(value) else str(value))


def _plain(value: object) -> bool:
    return isinstance(value, int | str)
