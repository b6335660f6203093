"""What exists against what the database thinks: each scale set has one standing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.cli.command import Cli
from rekindle.cli.connection import ConnectionOptions
from rekindle.cli.diagnostics.audit import audit_lines
from rekindle.cli.diagnostics.audit import audit_resources as command
from rekindle.cli.errors import ExitCode
from service.domain.cloud.fleet import Offering, Price, ScaleSet, ScaleSetPhase, TaggedResource
from service.domain.lifecycle.audit import (
    AuditStanding,
    ScaleSetOwner,
    audit_resources,
    hourly_by_standing,
    unpriced_offerings,
)
from service.domain.states import AttemptState, CapacityType

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
A, S = AttemptState, AuditStanding
SPOT = Offering(region="eastus", vm_size="ND", capacity_type=CapacityType.SPOT)
ON_DEMAND = replace(SPOT, capacity_type=CapacityType.ON_DEMAND)
PRICES = {
    SPOT: Price(hourly=Decimal(5), on_demand_hourly=Decimal(30)),
    ON_DEMAND: Price(hourly=Decimal(30), on_demand_hourly=Decimal(30)),
}


def owner(state: AttemptState, minutes: float = 1) -> ScaleSetOwner:
    return ScaleSetOwner(
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
    whose, existing, standing, leaks = CASES[case]
    sets, owners = [existing] if existing else [], {"att-1": whose} if whose else {}

    (resource,) = audit_resources(sets, owners, NOW, attempt_tag="a", job_tag="j")

    assert (resource.standing, resource.leaks, resource.machines) == (standing, leaks, 2)


def test_one_that_is_not_yet_there_or_rightly_gone_is_not_missed() -> None:
    for state in (A.PENDING, A.PROVISIONING, A.TERMINATING, A.ENDED):
        assert audit_resources([], {"att-1": owner(state)}, NOW, attempt_tag="a", job_tag="j") == []


def test_each_group_costs_what_its_machines_cost() -> None:
    other_set = ScaleSet(name="rk-2", phase=ScaleSetPhase.READY, capacity=2, tags={"a": "att-2"})
    resources = audit_resources(
        [scale_set(), other_set], {"att-1": owner(A.RUNNING)}, NOW, attempt_tag="a", job_tag="j"
    )

    assert hourly_by_standing(resources) == dict.fromkeys(S, Decimal(0)) | {
        S.USED: Decimal("16.88")
    }
    assert [f.attempt_id for f in resources] == ["att-1", "att-2"]
    assert resources[1].hourly is None


@pytest.mark.parametrize(
    ("bought", "offering", "hourly", "assumed"),
    [
        (CapacityType.SPOT, SPOT, Decimal(10), None),
        (CapacityType.ON_DEMAND, ON_DEMAND, Decimal(60), None),
        (None, SPOT, Decimal(10), CapacityType.SPOT),
    ],
)
def test_a_set_that_nobody_has_costs_what_the_list_says_as_spot_where_azure_does_not_tell(
    bought: CapacityType | None, offering: Offering, hourly: Decimal, assumed: CapacityType | None
) -> None:
    scale_sets = [replace(scale_set(), capacity_type=bought)]

    (resource,) = audit_resources(scale_sets, {}, NOW, prices=PRICES, attempt_tag="a", job_tag="j")

    assert unpriced_offerings(scale_sets, {}) == [offering]
    assert (resource.standing, resource.hourly, resource.assumed) == (S.UNKNOWN, hourly, assumed)
    assert hourly_by_standing([resource])[S.UNKNOWN] == hourly


def test_the_list_is_asked_for_no_set_that_it_cannot_price_and_no_price_is_guessed() -> None:
    (unpriced,) = audit_resources([scale_set()], {}, NOW, prices={}, attempt_tag="a", job_tag="j")
    nowhere = ScaleSet(name="rk-2", phase=ScaleSetPhase.READY)

    assert unpriced_offerings([scale_set(), nowhere], {"att-1": owner(A.ENDED)}) == []
    assert (unpriced.hourly, unpriced.assumed) == (None, None)


def test_a_disk_with_our_tag_is_a_stray_and_leaks_at_a_price_that_nobody_knows() -> None:
    disk = TaggedResource(
        kind="Microsoft.Compute/disks", name="old", region="eastus", tags={"a": "att-9"}
    )

    first, second = audit_resources(
        [scale_set()], {}, NOW, attempt_tag="a", job_tag="j", untracked=[disk]
    )

    assert (first.name, first.standing, first.leaks) == (
        "Microsoft.Compute/disks/old",
        S.UNTRACKED,
        True,
    )
    assert (first.attempt_id, first.hourly, second.name) == ("att-9", None, "rk-1")


def test_types_of_two_providers_that_end_alike_keep_names_of_their_own() -> None:
    kinds = ("Microsoft.Compute/disks", "Elsewhere.Compute/disks")
    untracked = [TaggedResource(kind=kind, name="old") for kind in kinds]

    resources = audit_resources([], {}, NOW, attempt_tag="a", job_tag="j", untracked=untracked)

    assert [f.name for f in resources] == [f"{kind}/old" for kind in sorted(kinds)]


@pytest.mark.parametrize(
    ("counts", "expected", "verdict"),
    [
        ({}, "", "Nothing leaks."),
        (
            {"unknown": 1},
            "unknown: 1 scale set with 2 machines",
            "1 scale set leak (the price of 1 is not known). See docs/runbook.md",
        ),
        ({"unknown": 2, "untracked": 1}, "untracked: 1 resource - ", "2 scale sets and 1 other "),
        ({"untracked": 1}, "untracked: 1 resource - ", "1 other resource leak ("),
        ({"unseen": "Not known: no role"}, "Not known: no role", "No scale set leaks."),
        ({"containers": 1}, "Blob has 1 container of unknown jobs", "No scale set leaks."),
        ({"containers": None}, "Blob did not answer; containers", "No scale set leaks."),
    ],
)
def test_the_command_says_what_leaks_and_where_to_read_on(
    counts: dict[str, Any], expected: str, verdict: str
) -> None:
    *before, last = audit_lines([], summary(**counts), 0.0)

    assert last.startswith(verdict)
    assert before[-1].startswith(expected) if expected else before == []


@pytest.mark.parametrize(
    ("price", "per_hour_if", "cell"),
    [(None, None, "?"), ("16.88", None, "$16.88"), ("16.88", "spot", "$16.88 if spot")],
)
def test_the_command_says_what_a_price_rests_on(
    price: str | None, per_hour_if: str | None, cell: str
) -> None:
    texts = dict.fromkeys(("id", "standing", "region", "vm_size", "attempt_state"), "x")
    resource: dict[str, Any] = texts | {
        "job": "",
        "since": None,
        "machines": 2,
        "per_hour": price,
        "per_hour_if": per_hour_if,
    }

    table, *_ = audit_lines([resource], summary(unknown=1), 0.0)

    assert list(map(str, table.columns[-1].cells)) == [cell]


@pytest.mark.parametrize(
    ("counts", "code"),
    [({}, ExitCode.OK), ({"untracked": 1}, ExitCode.FAILED), ({"unseen": "?"}, ExitCode.FAILED)],
)
def test_a_cron_job_hears_of_what_leaks_and_of_what_could_not_be_looked_at(
    counts: dict[str, Any], code: ExitCode
) -> None:
    page = {"data": [], "has_more": False, "summary": summary(**counts)}
    cli = Cli(ConnectionOptions(), as_json=True)
    vars(cli)["client"] = SimpleNamespace(get=lambda *_, **__: page)

    assert command(cli) == code


def summary(
    *, unknown: int = 0, untracked: int = 0, unseen: str | None = None, **containers: int | None
) -> dict[str, Any]:
    """As the service tells it."""
    groups = {s: {"scale_sets": 0, "machines": 0, "per_hour": "0"} for s in S}
    groups[S.UNKNOWN] = {"scale_sets": unknown, "machines": 2 * unknown, "per_hour": "0"}
    groups[S.UNTRACKED] = {"resources": untracked, "machines": 0, "per_hour": "0"}
    leaks = unknown + untracked
    members = {"groups": groups, "leaks": leaks, "unpriced_leaks": leaks, "unseen": unseen}
    return members | {f"unknown_{name}": number for name, number in containers.items()}
