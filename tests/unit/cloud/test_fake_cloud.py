"""The manners of the fake cloud that the emulator cannot be asked for, and whole lives in it."""

from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, ScaleSetNotFound, Throttled
from service.domain.cloud.fleet import Offering, ScaleSet, ScaleSetPhase, ScaleSetSpec
from service.domain.states import CapacityType
from tests.clock import Clock

T = TypeVar("T")
OFFERING = Offering(region="eastus", vm_size="ND", capacity_type=CapacityType.SPOT)
SPEC = ScaleSetSpec(name="rk-1", offering=OFFERING, instance_count=3, cloud_init="#cloud-config\n")


@pytest.fixture
def cloud(clock: Clock) -> FakeCloud:
    return FakeCloud(now=clock)


async def test_a_fresh_scale_set_costs_before_it_can_be_seen(
    cloud: FakeCloud, clock: Clock
) -> None:
    await cloud.create(SPEC)
    with pytest.raises(ScaleSetNotFound):
        await cloud.get("rk-1")
    assert await cloud.list_owned() == []
    assert cloud.billed_names() == {"rk-1"}

    clock.at += cloud.visible_after
    assert (await cloud.get("rk-1")).phase is ScaleSetPhase.CREATING


async def test_a_partial_allocation_fails_with_machines_that_cost(
    cloud: FakeCloud, clock: Clock
) -> None:
    cloud.partial_capacity[OFFERING] = 2
    await cloud.create(SPEC)
    clock.at += cloud.create_time
    seen = await cloud.get("rk-1")

    assert (seen.phase, seen.error_code) == (ScaleSetPhase.FAILED, "AllocationFailed")
    assert [i.instance_id for i in seen.instances] == ["0", "1"]


async def test_an_evicted_instance_may_linger_stopped(cloud: FakeCloud, clock: Clock) -> None:
    await cloud.create(SPEC)
    clock.at += cloud.create_time
    cloud.evict("rk-1", "1", lingers=True)
    seen = await cloud.get("rk-1")

    assert [i.running for i in seen.instances] == [True, False, True]


async def test_a_call_may_fail_before_anything_is_done(cloud: FakeCloud) -> None:
    cloud.fail_next = [Throttled("slow down", "TooManyRequests", 30)]
    with pytest.raises(Throttled):
        await cloud.create(SPEC)

    assert cloud.billed_names() == set()
    await cloud.create(SPEC)


async def test_an_answer_may_get_lost_after_all_was_done(cloud: FakeCloud) -> None:
    cloud.lose_answers = 1
    with pytest.raises(CloudError):
        await cloud.create(SPEC)

    assert cloud.billed_names() == {"rk-1"}
    await cloud.create(SPEC)


async def test_the_same_instance_has_the_same_vm_id_in_every_run(clock: Clock) -> None:
    ids = []
    for _ in range(2):
        cloud = FakeCloud(now=clock, create_time=timedelta(0), visible_after=timedelta(0))
        await cloud.create(SPEC)
        ids.append([i.vm_id for i in (await cloud.get("rk-1")).instances])

    assert ids[0] == ids[1]


class Lives(RuleBasedStateMachine):
    """Any calls in any order, with evictions, refusals and lost answers in between."""

    names = st.sampled_from(["rk-1", "rk-2", "rk-3"])

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.cloud = FakeCloud(now=self.clock)
        self.accepted: set[str] = set()  # asked for, and not seen to be gone since
        self.last: dict[str, ScaleSet] = {}

    @rule(name=names, lost=st.booleans())
    def create(self, name: str, lost: bool) -> None:
        self.cloud.lose_answers = int(lost)
        self._try(self.cloud.create(replace(SPEC, name=name)))
        self.accepted.add(name)

    @rule(name=names, lost=st.booleans())
    def delete(self, name: str, lost: bool) -> None:
        self.cloud.lose_answers = int(lost)
        self._try(self.cloud.delete(name))

    @rule(name=names, number=st.integers(0, 2), lingers=st.booleans())
    def evict(self, name: str, number: int, lingers: bool) -> None:
        seen = self.last.get(name)
        if seen and str(number) in {i.instance_id for i in seen.instances}:
            self.cloud.evict(name, str(number), lingers=lingers)

    @rule(seconds=st.integers(0, 240))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @rule(refused=st.booleans())
    def sell_out(self, refused: bool) -> None:
        self.cloud.sold_out_late = {OFFERING} if refused else set()

    @invariant()
    def what_costs_was_asked_for(self) -> None:
        assert self.cloud.billed_names() <= self.accepted

    @invariant()
    def what_is_listed_can_be_got_and_costs(self) -> None:
        listed = {s.name: s for s in _run(self.cloud.list_owned())}
        assert listed.keys() <= self.cloud.billed_names()
        for name, row in listed.items():
            assert replace(_run(self.cloud.get(name)), instances=()) == row

    @invariant()
    def a_life_only_goes_forward(self) -> None:
        order = list(ScaleSetPhase)
        for name in ("rk-1", "rk-2", "rk-3"):
            seen = self._try(self.cloud.get(name))
            before = self.last.pop(name, None)
            if seen is None:
                continue
            self.last[name] = seen
            if before and before.phase is not ScaleSetPhase.DELETING:
                assert order.index(seen.phase) >= order.index(before.phase)
            if before and before.phase is seen.phase:
                assert {i.vm_id for i in seen.instances} <= {i.vm_id for i in before.instances}

    def _try(self, call: Coroutine[Any, Any, T]) -> T | None:
        try:
            return _run(call)
        except CloudError:
            return None
        finally:
            self.cloud.lose_answers = 0


def _run(call: Coroutine[Any, Any, T]) -> T:
    """Run a call that never waits."""
    try:
        call.send(None)
    except StopIteration as ended:
        return cast(T, ended.value)
    raise AssertionError("it waits")


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=30)
