"""Where a job runs next, and that no capacity makes a feasible deadline late."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.placement.cost_to_go import solve
from service.domain.placement.policy import choose, rank_spot
from service.domain.placement.policy_state import Candidate, DecisionKind, MoveMode, PolicyState
from service.domain.simulation.simulator import (
    AvailabilitySignals,
    MarketExperience,
    SimulationCase,
    simulate,
)
from tests.unit.spot.policy_world import HOUR, TICK_S, hold, life, paid, policy_state, spot

GONE = spot(refused_s=0.0, down_s=0.0)
SLOW, BACK = spot(speed=0.5), (paid(), spot())
DEAR, LIKELY = spot(move_dollars=0.5), spot(likely_s=900.0)
TWICE = policy_state(held=hold(paid(hourly=2.0)), candidates=(DEAR, paid(hourly=2.0)))
DRY = policy_state(
    candidates=(GONE, replace(GONE, offering=spot("westus").offering), paid(hourly=2.0)),
    lost_s=500.0,
    hops=(3, 1),
)
LEAVING = policy_state(
    held=hold(paid()), candidates=(LIKELY, paid()), moves=MoveMode.LEAVES_FIRST, leave_s=900.0
)


def test_without_a_deadline_full_price_is_never_paid() -> None:
    refused = policy_state(left_s=None, candidates=(GONE, paid()), outage_s=50 * HOUR)

    assert choose(refused).kind is DecisionKind.WAIT


def test_what_refused_is_asked_again_after_a_while() -> None:
    rested = policy_state(left_s=None, candidates=(spot(refused_s=61.0), paid()))

    assert choose(rested).kind is DecisionKind.RUN


def test_a_deadline_that_only_just_can_be_met_begins_on_demand() -> None:
    tight = policy_state(left_s=10 * HOUR + 600)

    decision = choose(tight)

    assert decision.candidate == paid()
    assert "meets the deadline" in decision.why


def test_the_cheapest_machines_on_demand_that_are_in_time_hold_the_deadline() -> None:
    slow, fast = paid(hourly=0.6, speed=0.5), paid(nodes=2, hourly=2.0)
    tight = policy_state(left_s=12 * HOUR, candidates=(slow, fast))

    assert choose(tight).candidate == fast
    assert choose(replace(tight, left_s=24 * HOUR)).candidate == slow


def test_a_missed_deadline_is_said() -> None:
    assert "cannot be met" in choose(policy_state(left_s=9 * HOUR)).why


@pytest.mark.parametrize(
    ("state", "beyond_s", "before", "after"),
    [
        (policy_state(), 1260, paid(), spot()),
        (policy_state(held=hold(spot()), lost_s=200.0), 600, spot(), paid()),
        (policy_state(held=hold(spot()), lost_s=200.0), 800, paid(), spot()),
        (policy_state(held=hold(spot()), lost_s=200.0, margin_s=90.0, step_s=600.0), 890, *BACK),
        (policy_state(held=hold(SLOW), candidates=(SLOW, paid()), step_s=600.0), 900, paid(), SLOW),
        (policy_state(candidates=(GONE, paid()), outage_s=3 * HOUR), 9000, paid(), None),
        (policy_state(held=hold(paid())), 1200, paid(), spot()),
        (LEAVING, 600 + 600 + 900 + 60, paid(), LIKELY),
    ],
    ids=["none", "too late", "spot", "margin", "slow spot", "refused", "on demand", "leaves first"],
)
def test_the_choice_turns_at_a_second(
    state: PolicyState, beyond_s: int, before: Candidate, after: Candidate | None
) -> None:
    """So many seconds beyond the ten hours of work."""
    turns = 10 * HOUR + beyond_s

    for left_s, candidate in ((turns - 1, before), (turns, after)):
        decision = choose(replace(state, left_s=left_s))
        stays = candidate is not None and state.held == hold(candidate)
        kind = (
            DecisionKind.WAIT
            if candidate is None
            else DecisionKind.STAY
            if stays
            else DecisionKind.RUN
        )
        assert (decision.kind, decision.candidate) == (kind, candidate)


@pytest.mark.parametrize(
    ("state", "figures"),
    [
        (replace(TWICE, outage_s=HOUR / 2), {"go_dollars": 9.8868, "stay_dollars": 11.1626}),
        (replace(TWICE, outage_s=9 * HOUR), {"go_dollars": 9.8868, "stay_dollars": 16.5998}),
        (
            replace(LEAVING, returned=(5, 1), left_s=15 * HOUR),
            {"go_dollars": 6.4523, "stay_dollars": 7.2061},
        ),
        (replace(DRY, outage_s=HOUR / 2), {"wait_dollars": 7.6382, "on_demand_dollars": 8.3666}),
        (replace(DRY, outage_s=9 * HOUR), {"wait_dollars": 13.8585, "on_demand_dollars": 14.8326}),
        (replace(DRY, outage_seen=False), {"wait_dollars": 10.6904, "on_demand_dollars": 11.6222}),
    ],
)
def test_a_choice_is_told_with_the_dollars_that_were_weighed(
    state: PolicyState, figures: dict[str, float]
) -> None:
    assert choose(state).figures == pytest.approx(figures, abs=5e-4)


def test_a_job_on_demand_stays_when_moving_is_not_possible() -> None:
    ahead = policy_state(held=hold(paid()), left_s=20 * HOUR, moves=MoveMode.STAYS)

    assert choose(ahead).kind is DecisionKind.STAY


@pytest.mark.parametrize(
    ("spot_is", "kind"),
    [
        ({}, DecisionKind.STAY),
        ({"likely_s": 900.0}, DecisionKind.RUN),
        ({"likely_s": 900.0, "down_s": 600.0}, DecisionKind.STAY),
        ({"likely_s": 900.0, "down_s": 4000.0}, DecisionKind.RUN),
    ],
    ids=[
        "no signal",
        "a signal",
        "a signal that began before it refused",
        "a signal since it refused",
    ],
)
def test_on_demand_is_left_for_spot_only_on_a_signal(
    spot_is: dict[str, Any], kind: DecisionKind
) -> None:
    market = spot(**spot_is)
    ahead = policy_state(
        held=hold(paid()),
        left_s=20 * HOUR,
        moves=MoveMode.LEAVES_FIRST,
        candidates=(market, paid()),
    )

    assert choose(ahead).kind is kind


def test_signals_that_were_wrong_are_believed_less() -> None:
    likely = spot(likely_s=900.0)
    ahead = policy_state(
        held=hold(paid()),
        left_s=13 * HOUR,
        moves=MoveMode.LEAVES_FIRST,
        candidates=(likely, paid()),
    )
    short = replace(ahead, work_s=HOUR, left_s=3 * HOUR, outage_s=30 * HOUR)

    assert choose(replace(short, returned=(1, 1))).kind is DecisionKind.RUN
    assert choose(replace(short, returned=(200, 0))).kind is DecisionKind.STAY


def test_spot_is_not_left_for_other_spot_where_it_must_be_left_first() -> None:
    current, target = spot(), spot("westus", hourly=0.1, likely_s=900.0)
    running = policy_state(
        held=hold(current), candidates=(current, target, paid()), moves=MoveMode.LEAVES_FIRST
    )

    assert choose(running).kind is DecisionKind.STAY


def test_much_cheaper_is_worth_a_move_unless_the_checkpoint_costs_more() -> None:
    current, target = spot(), spot("westus", hourly=0.1)
    running = policy_state(held=hold(current), candidates=(current, target, paid()))
    dear, little = (
        replace(running, candidates=(current, one, paid()))
        for one in (replace(target, move_dollars=5.0), replace(target, hourly=0.29))
    )

    assert choose(running).candidate == target
    assert choose(dear).kind is choose(little).kind is DecisionKind.STAY


def test_a_place_that_evicted_a_minute_ago_ranks_behind_its_equal() -> None:
    burnt, calm = spot("eastus", evicted_s=60.0), spot("westus")

    assert rank_spot(policy_state(candidates=(burnt, calm)))[0] == calm


def test_machines_that_start_at_once_can_be_chosen_among() -> None:
    absent, net = replace(GONE, cold_start_s=0.0), paid(cold_start_s=0.0)
    short = policy_state(candidates=(absent, net), work_s=HOUR, left_s=5 * HOUR)

    assert choose(short).kind is DecisionKind.WAIT


def test_jobs_alike_share_a_solution() -> None:
    choose(policy_state(candidates=(replace(GONE, hourly=0.3), paid()), lost_s=270.0))
    before = solve.cache_info().misses

    choose(policy_state(candidates=(replace(GONE, hourly=0.302), paid()), lost_s=290.0))

    assert solve.cache_info().misses == before


def test_a_policy_state_can_be_stored() -> None:
    stored = json.loads(json.dumps(policy_state(held=hold(spot())).as_dict()))

    assert stored["work_s"] == 10 * HOUR


WORLDS = st.fixed_dictionaries(
    {
        "zones": st.lists(
            st.lists(st.booleans(), min_size=90, max_size=90), min_size=1, max_size=2
        ),
        "work": st.integers(6, 24),
        "spare": st.integers(0, 30),
        "cold": st.sampled_from((1, 3)),
        "lost": st.integers(0, 2),
        "errs": st.sampled_from((0.1, 1.0)),
    }
)


@settings(max_examples=12)
@given(world=WORLDS)
def test_no_capacity_makes_a_feasible_deadline_late(world: dict[str, Any]) -> None:
    assert ends_in_time(world)


@pytest.mark.long
@settings(max_examples=300)
@given(world=WORLDS)
def test_no_random_capacity_makes_a_feasible_deadline_late(world: dict[str, Any]) -> None:
    assert ends_in_time(world)


def ends_in_time(world: dict[str, Any]) -> bool:
    """Where on demand from the beginning would have."""
    work, cold = world["work"], world["cold"]
    deadline = work + cold + world["spare"]

    signals = AvailabilitySignals(true_positive_rate=0.8, false_positive_rate=world["errs"])

    lived = life(
        world["zones"], work=work, deadline=deadline, cold=cold, lost=world["lost"], signals=signals
    )
    return lived.finished is not None and lived.finished <= deadline


DRY_AT_FIRST = [[False] * 60 + [True] * 300]
NARROW = [([True] * 14 + [False] * 5) * 20]
WIDE = [*NARROW, ([False] * 3 + [True] * 30) * 12]
BLIND = {
    "work": 150,
    "deadline": 200,
    "signals": AvailabilitySignals(true_positive_rate=0.0, false_positive_rate=0.0),
}
WRONG = {
    "work": 150,
    "deadline": 200,
    "signals": AvailabilitySignals(true_positive_rate=1.0, false_positive_rate=0.5),
}


@pytest.mark.parametrize(
    ("capacity", "settings", "expected"),  # finished, on Spot, on demand, evictions, starts
    [
        (NARROW, {"deadline": 100, "lost": 1}, (97, 70, 7, 5, 6)),
        (WIDE, {"deadline": 90, "lost": 1}, (77, 74, 0, 4, 5)),
        (WIDE, {"deadline": None, "lost": 2}, (81, 78, 0, 4, 5)),
        ([[True] * 200], {"deadline": 100}, (62, 62, 0, 0, 1)),
        ([[False] * 200], {"deadline": 100}, (91, 0, 62, 0, 1)),
        ([[True] * 10 + [False] * 190, [True] * 200], {"deadline": 100}, (64, 64, 0, 1, 2)),
        (DRY_AT_FIRST, BLIND, (171, 0, 152, 0, 1)),
        ([[False] * 400], WRONG, (196, 0, 158, 0, 4)),
    ],
    ids=[
        "narrow",
        "wide",
        "no hurry",
        "steady",
        "none",
        "other zone",
        "no signal",
        "wrong signals",
    ],
)
def test_a_life_on_known_capacity_is_known(
    capacity: list[list[bool]], settings: dict[str, Any], expected: tuple[int, ...]
) -> None:
    run = life(capacity, **{"work": 60, "cold": 2} | settings)

    assert expected == (run.finished, run.spot, run.on_demand, run.evictions, run.starts)
    price = (0.3 * run.spot + run.on_demand) * TICK_S / HOUR
    assert run.dollars == pytest.approx(price)


def test_a_job_that_began_on_demand_ends_on_spot_once_there_is_some() -> None:
    experience = MarketExperience.empty(1)
    alone = life(DRY_AT_FIRST, work=150, deadline=200, cold=2, experience=experience)

    assert alone.on_demand > 0
    assert alone.spot > 60
    assert alone.starts == 2
    assert (experience.moved, experience.moves_granted) == (1, 1)
    assert alone.finished is not None
    assert alone.finished <= 200


def test_a_life_begins_where_its_checkpoint_lies() -> None:
    current, target = spot("here", move_dollars=1.0), spot("there", 0.28, move_dollars=1.0)
    case = SimulationCase(
        tick_s=TICK_S,
        work=60,
        deadline=None,
        cold=2,
        lost=0,
        zones=(current, target),
        on_demand=None,
    )

    run = simulate(case, [[True] * 90] * 2, 0, MarketExperience.empty(2))

    assert run.dollars == pytest.approx(0.3 * 62 * TICK_S / HOUR)
