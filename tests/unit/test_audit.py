"""What exists against what the database thinks: each scale set has one standing."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from rekindle.cli.audit import view
from service.domain.audit import Owner, Standing, audit, per_hour
from service.domain.fleet import Resource, ScaleSet, ScaleSetPhase
from service.domain.states import AttemptState

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
A, S = AttemptState, Standing


def owner(state: AttemptState, minutes: float = 1) -> Owner:
    return Owner(
        attempt_id="att-1",
        job_id="job-1",
        state=state,
        since=NOW - timedelta(minutes=minutes),
        region="eastus",
        vm_size="ND",
        instance_count=2,
        hourly=Decimal("8.44"),
    )


def scale_set(phase: ScaleSetPhase = ScaleSetPhase.READY) -> ScaleSet:
    return ScaleSet(name="rk-1", phase=phase, capacity=2, region="eastus", vm_size="ND")


CASES = {
    "of an attempt that trains": (owner(A.RUNNING), scale_set(), S.USED, False),
    "in the making": (owner(A.PROVISIONING), scale_set(), S.USED, False),
    "whose attempt is over": (owner(A.TERMINATING), scale_set(), S.GOING, False),
    "whose attempt has been over for long": (
        owner(A.TERMINATING, 16),
        scale_set(),
        S.LINGERING,
        True,
    ),
    "that is being deleted, however slowly": (
        owner(A.TERMINATING, 16),
        scale_set(ScaleSetPhase.DELETING),
        S.LINGERING,
        False,
    ),
    "whose attempt was seen to be gone": (owner(A.ENDED), scale_set(), S.UNKNOWN, True),
    "that was never asked for": (owner(A.PENDING), scale_set(), S.UNKNOWN, True),
    "of nobody": (None, scale_set(), S.UNKNOWN, True),
    "that is gone under its nodes": (owner(A.RUNNING), None, S.MISSING, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_scale_set(case: str) -> None:
    whose, there, standing, leaks = CASES[case]
    sets, owners = [there] if there else [], {"att-1": whose} if whose else {}

    (found,) = audit(sets, owners, NOW, attempt_tag="a", job_tag="j")

    assert (found.standing, found.leaks, found.machines) == (standing, leaks, 2)


def test_one_that_is_not_yet_there_or_rightly_gone_is_not_missed() -> None:
    for state in (A.PENDING, A.PROVISIONING, A.TERMINATING, A.ENDED):
        assert audit([], {"att-1": owner(state)}, NOW, attempt_tag="a", job_tag="j") == []


def test_each_group_costs_what_its_machines_cost() -> None:
    other = ScaleSet(name="rk-2", phase=ScaleSetPhase.READY, capacity=2, tags={"a": "att-2"})
    found = audit(
        [scale_set(), other], {"att-1": owner(A.RUNNING)}, NOW, attempt_tag="a", job_tag="j"
    )

    assert per_hour(found) == dict.fromkeys(S, Decimal(0)) | {S.USED: Decimal("16.88")}
    assert [f.attempt_id for f in found] == ["att-1", "att-2"]
    assert found[1].hourly is None


def test_a_disk_with_our_tag_is_a_stray_and_leaks_at_a_price_that_nobody_knows() -> None:
    disk = Resource(
        kind="Microsoft.Compute/disks", name="old", region="eastus", tags={"a": "att-9"}
    )

    first, second = audit([scale_set()], {}, NOW, attempt_tag="a", job_tag="j", strays=[disk])

    assert (first.name, first.standing, first.leaks) == ("disks/old", S.STRAY, True)
    assert (first.attempt_id, first.hourly, second.name) == ("att-9", None, "rk-1")


def test_the_command_says_what_leaks_and_where_to_read_on() -> None:
    groups = {s: {"scale_sets": 0, "machines": 0, "per_hour": "0"} for s in S}
    groups[S.UNKNOWN] = {"scale_sets": 1, "machines": 2, "per_hour": "0"}
    summary = {"groups": groups, "leaks": 1, "unpriced_leaks": 1}

    *_, group, last = view([], summary, 0.0)
    (fine,) = view([], {"groups": {}, "leaks": 0}, 0.0)

    assert group.startswith("unknown: 1 scale set with 2 machines")
    assert last == "1 scale set leak (the price of 1 is not known). What to do: docs/runbook.md"
    assert fine == "Nothing leaks."
