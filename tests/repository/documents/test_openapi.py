"""openapi.json matches the routes, and changes do not break clients of its last version."""

import copy
import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.repository import openapi
from tests.repository.sources import ROOT

Json = dict[str, Any]
_MORE = "it has the members of a Plan or an Option, and declares more of what was answered"
INTENDED: dict[str, str] = {  # incompatible changes, each with its reason; CHANGELOG.md has them
    "System.replicas may also be array": "it was always null, and is in no release",
    "JobPlan.plan may also be OfferedPlan": _MORE,
    "StoredPlan.plan may also be OfferedPlan": _MORE,
    "StoredPlan.chosen may also be OfferedOption": _MORE,
    "POST /v1/fine_tuning/jobs/{job_id}/calendar is gone": "620 lines that hardly anybody needs",
    "CheckpointInterval.since is gone": "a generation keeps its interval, and has a date itself",
}
NEW_METHOD = "Method.type may also be "  # only jobs have it that were asked for with it


def _before() -> Json:
    """Return the document before the newest commit that changed it, or the first one."""
    log = ["git", "log", "--format=%H", "-2", "--", "openapi.json"]
    commits = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    show = ["git", "show", f"{(commits.split() or ['HEAD'])[-1]}:openapi.json"]
    process = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=False)
    document: Json = json.loads(process.stdout if process.returncode == 0 else openapi.page())
    return document


def test_the_committed_document_is_what_the_routes_say() -> None:
    assert openapi.PAGE.read_text(encoding="utf-8") == openapi.page(), "run: make docs"
    assert openapi.CONSOLE.read_text(encoding="utf-8") == openapi.methods(), "run: make docs"


def test_no_change_of_the_document_breaks_a_client() -> None:
    breaking = openapi.breaks(_before(), json.loads(openapi.page()))

    assert [c for c in breaking if c not in INTENDED and not c.startswith(NEW_METHOD)] == []


def _members(document: Json, schema: str) -> Json:
    properties: Json = document["components"]["schemas"][schema]["properties"]
    return properties


@pytest.mark.parametrize(
    ("change", "breaks"),
    [
        (lambda d: d["paths"]["/v1/fine_tuning/jobs"].pop("get"), True),
        (lambda d: _members(d, "Job").pop("phase"), True),
        (lambda d: d["components"]["schemas"]["JobRequest"]["required"].append("seed"), True),
        (lambda d: _members(d, "Job").update(id={"type": "integer"}), True),
        (lambda d: _members(d, "TrainingRequest")["precision"]["enum"].remove("fp16"), True),
        (lambda d: d["paths"]["/v1/files"]["get"]["parameters"].pop(0), True),
        (lambda d: _members(d, "Job").update(mood={"type": "string"}), False),
    ],
    ids=["route", "member", "required", "wider", "narrower", "parameter", "one more member"],
)
def test_a_change_that_breaks_clients_is_found(
    change: Callable[[Json], object], *, breaks: bool
) -> None:
    before = json.loads(openapi.page())
    after = copy.deepcopy(before)
    change(after)

    assert bool(openapi.breaks(before, after)) is breaks
