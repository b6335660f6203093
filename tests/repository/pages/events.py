"""docs/events.md, from `contract/job_events.py`."""

from itertools import groupby

from contract.job_events import JOB_EVENTS
from tests.repository.pages.markdown import code, table
from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "events.md"
_HEAD = """\
# Events of a job

For users and programs that follow a job: every event and what it means. `rekindle events JOB`,
`GET /v1/fine_tuning/jobs/{id}/events` and `.../events/stream` show events. Each has `level`,
`code`, `message` and, for programs, `data`. [Troubleshooting](troubleshooting.md) says what to do
about a warning.

Generated from `contract/job_events.py` by `make docs`; do not edit.

A warning about rows of a file has the code `file.CODE`, with the codes of
[the data check](troubleshooting.md#rows-that-cannot-be-trained-on).
"""


def page() -> str:
    """Return the whole page."""
    lines = [_HEAD.rstrip("\n")]
    for group, items in groupby(JOB_EVENTS.items(), key=lambda item: item[0].split(".")[0]):
        rows = [(code(name), ", ".join(event.levels), event.meaning) for name, event in items]
        lines += ["", f"## {group}", "", *table(("code", "level", "meaning"), rows)]
    return "\n".join(lines) + "\n"
