"""The loop's decisions, in one process with a small engine instead of DeepSpeed's."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rendering.tokens import Tokens
from tests.unit.trainer.model.bigram import Answer
from tests.unit.trainer.process.trainer_spec import ME, SPEC
from trainer.checkpoint.rng_state import RngState, capture_rng
from trainer.checkpoint.saver import SaveStall
from trainer.contract import RunSpec, StepMetrics
from trainer.data.batch import Batch, padded
from trainer.data.step_input import StepInput
from trainer.engine.evaluation import LossEvaluation
from trainer.engine.utilization import UtilizationMeter
from trainer.loop import LoopContext, NotFiniteError, train
from trainer.methods.supervised import SupervisedLoss
from trainer.process.journal import Journal
from trainer.process.non_retryable import NonRetryableError
from trainer.process.sync_flags import FlagSync
from trainer.rollout.reward_metrics import RewardSums
from trainer.rundir import RunDir
from trainer.state import TrainingState

pytestmark = pytest.mark.usefixtures("world_of_one")

BATCH = padded([Tokens([1, 2, 3], [False, True, True])], pad_id=0)


@dataclass
class SmallEngine:
    """As much of DeepSpeed's engine as the loop uses; its model is one table."""

    accumulation: int
    module: Any = field(default_factory=lambda: torch.nn.Embedding(4, 4))
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    micro_steps: int = 0
    updates: int = 0
    after_micro_step: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)

    def __call__(self, input_ids: torch.Tensor, **_: Any) -> Answer:  # noqa: ANN401
        torch.rand(1)  # as dropout does
        return Answer(self.module(input_ids))

    def backward(self, loss: torch.Tensor, *, scale_wrt_gas: bool) -> None:
        assert not scale_wrt_gas
        loss.backward()

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro_steps + 1) % self.accumulation == 0

    def step(self) -> None:
        if self.is_gradient_accumulation_boundary():
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.updates += 1
        self.micro_steps += 1
        self.after_micro_step(self.micro_steps)

    def zero_optimization_stage(self) -> int:
        return 0

    def gradient_accumulation_steps(self) -> int:
        return self.accumulation

    def train_batch_size(self) -> int:
        return self.accumulation

    def train(self, mode: bool = True) -> None: ...

    def eval(self) -> None: ...


@dataclass
class Saves:
    """A saver that only remembers."""

    kinds: list[tuple[str, int]] = field(default_factory=list)
    randomness: list[RngState] = field(default_factory=list)
    busy: bool = False
    cost: SaveStall = field(default_factory=lambda: SaveStall(stall=0.5, blocks=0))

    def save(self, state: TrainingState, randomness: RngState, kind: str) -> None:
        self.kinds.append((kind, state.step))
        self.randomness.append(randomness)


@dataclass
class Feed:
    """Gives the same micro-batches at every step, after calling ``before`` with the cursor."""

    batches: list[Batch]
    before: Callable[[int], None] = lambda _: None

    stopped: bool = False  # while the batches were made
    figures: RewardSums | None = None

    def step(self, state: TrainingState) -> StepInput | None:
        self.before(state.consumed_samples)
        return None if self.stopped else StepInput(batches=self.batches, figures=self.figures)

    def units(self, state: TrainingState, units: Callable[[Batch], int]) -> Iterator[int]:
        for cursor in range(state.consumed_samples, 8, 2):
            self.before(cursor)
            yield from map(units, self.batches)


@dataclass
class Rig:
    """A loop ready to run, and what it works on."""

    rundir: RunDir
    engine: SmallEngine
    saves: Saves
    feed: Feed
    parts: LoopContext

    def run(self, state: TrainingState | None = None) -> tuple[TrainingState, bool]:
        return train(self.parts, state or TrainingState())


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Three steps of two micro-steps; the clock moves a second at every look."""
    spec = replace(SPEC, total_steps=3, global_batch=2, micro_batch=1, checkpoint_seconds=1e9)
    return make_rig(tmp_path, spec)


def make_rig(root: Path, spec: RunSpec) -> Rig:
    rundir, engine, saves = RunDir(root), SmallEngine(accumulation=2), Saves()
    feed, seconds = Feed([BATCH, BATCH]), iter(range(10**6))
    parts = LoopContext(
        spec=spec,
        identity=ME,
        engine=engine,
        method=SupervisedLoss(),
        source=feed,
        evaluation=None,
        saver=saves,  # type: ignore[arg-type]
        flag_sync=FlagSync(rundir, None, lambda: saves.busy, lambda: None),
        journal=Journal(rundir, ME),
        meter=UtilizationMeter(engine, spec, ME),
        now=lambda: float(next(seconds)),
    )
    return Rig(rundir, engine, saves, feed, parts)


def test_a_run_goes_to_its_last_step_without_a_save_at_the_end(rig: Rig) -> None:
    state, finished = rig.run()

    assert finished
    assert (state.step, state.consumed_samples, rig.engine.updates) == (3, 6, 3)
    assert rig.saves.kinds == []
    assert rig.rundir.progress.read_text() == "3"
    assert len(rig.rundir.metrics.read_text().splitlines()) == 3


class RecordsSteps(SupervisedLoss):
    """Keeps the number of each step that it prepares."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def prepare_step(self, step: int) -> None:
        self.steps.append(step)


def test_a_method_knows_the_number_of_each_step_before_it(rig: Rig) -> None:
    method = RecordsSteps()

    train(replace(rig.parts, method=method), TrainingState(step=1, consumed_samples=2))

    assert method.steps == [2, 3]


def test_a_stop_in_the_middle_of_a_step_drops_it_and_saves_the_boundary(rig: Rig) -> None:
    boundaries: list[RngState] = []
    rig.feed.before = lambda _: boundaries.append(capture_rng())
    rig.engine.after_micro_step = lambda count: rig.rundir.stop.touch() if count == 3 else None

    state, finished = rig.run()

    assert not finished
    assert (state.step, rig.engine.updates, rig.engine.micro_steps) == (1, 1, 3)
    assert rig.saves.kinds == [("stop", 1)]
    assert rig.saves.randomness == [boundaries[1]] != [capture_rng()]


def test_a_stop_with_time_left_ends_the_step_first(rig: Rig) -> None:
    rig.rundir.prepare_stop_flag()
    rig.engine.after_micro_step = lambda count: (
        rig.rundir.raise_stop_flag(after_step=True) if count == 3 else None
    )

    state, finished = rig.run()

    assert not finished
    assert (state.step, rig.engine.updates, rig.engine.micro_steps) == (2, 2, 4)
    assert rig.saves.kinds == [("stop", 2)]
    assert rig.saves.randomness == [capture_rng()]


def test_a_stop_right_after_a_load_saves_nothing(rig: Rig) -> None:
    rig.rundir.stop.touch()

    state, finished = rig.run(TrainingState(step=2, consumed_samples=4))

    assert (state.step, finished) == (2, False)
    assert rig.saves.kinds == []


def test_a_stop_after_the_last_step_saves_it_instead_of_exporting(rig: Rig) -> None:
    rig.parts = replace(rig.parts, evaluation=evaluation(rig, stopping_validation(rig, after=3)))

    state, finished = rig.run()

    assert (state.step, finished) == (3, False)
    assert rig.saves.kinds == [("stop", 3)]
    assert state.metrics is not None
    assert state.metrics.valid_loss is None


def test_a_run_that_saves_at_every_step_learns_the_very_same(tmp_path: Path) -> None:
    seldom, often = (learnt(tmp_path / str(every), every) for every in (1000.0, 0.0))

    assert often.losses == seldom.losses
    assert len(set(often.losses)) == 12
    assert torch.equal(often.parameters, seldom.parameters)
    assert seldom.saves == []
    assert often.saves == [("periodic", step) for step in range(1, 12)]


@dataclass(frozen=True)
class Learnt:
    """What came of a run."""

    losses: list[float]
    parameters: torch.Tensor
    saves: list[tuple[str, int]]


def learnt(root: Path, every: float) -> Learnt:
    """Twelve steps with so many seconds between two saves."""
    spec = replace(SPEC, total_steps=12, global_batch=2, micro_batch=1, checkpoint_seconds=every)
    torch.manual_seed(7)
    root.mkdir()
    rig = make_rig(root, spec)
    rig.run()
    lines = rig.rundir.metrics.read_text().splitlines()
    losses = [StepMetrics.from_json(line).loss for line in lines]
    return Learnt(losses, rig.engine.module.weight.detach().clone(), rig.saves.kinds)


def test_saves_are_periodic_but_wait_while_an_earlier_one_is_on_its_way(tmp_path: Path) -> None:
    spec = replace(SPEC, total_steps=6, global_batch=2, micro_batch=1, checkpoint_seconds=0.0)
    rig = make_rig(tmp_path, spec)

    def fill(consumed: int) -> None:
        rig.saves.busy = consumed in (4, 6)

    rig.feed.before = fill
    rig.run()

    assert rig.saves.kinds == [("periodic", step) for step in (1, 2, 5)]


def test_a_loss_that_is_not_finite_stops_before_the_update(rig: Rig) -> None:
    with torch.no_grad():
        rig.engine.module.weight.fill_(math.nan)

    with pytest.raises(NotFiniteError, match="the loss of step 1 is nan; lower the learning rate"):
        rig.run()

    assert rig.engine.updates == 0
    # A broken GPU also produces NaN, so other machines may succeed.
    assert not issubclass(NotFiniteError, NonRetryableError)


def test_the_validation_loss_before_the_first_step_is_kept_and_changes_nothing(
    tmp_path: Path,
) -> None:
    spec = replace(SPEC, total_steps=3, global_batch=2, micro_batch=1, checkpoint_seconds=1e9)
    table = torch.randn(4, 4)
    plain, measured = (make_rig(tmp_path / name, spec) for name in ("plain", "measured"))
    for rig in (plain, measured):
        rig.rundir.root.mkdir()
        rig.engine.module = torch.nn.Embedding.from_pretrained(table.clone(), freeze=False)
        rig.engine.__post_init__()
    measured.parts = replace(measured.parts, evaluation=evaluation(measured, lambda: iter([BATCH])))

    torch.manual_seed(5)
    without, _ = plain.run()
    torch.manual_seed(5)
    rng_states: list[RngState] = []
    measured.feed.before = lambda _: rng_states.append(capture_rng())
    state, _ = measured.run()

    torch.manual_seed(5)
    assert rng_states[0] == capture_rng()
    assert torch.equal(measured.engine.module.weight, plain.engine.module.weight)
    assert state.tokens == without.tokens == 3 * 2 * BATCH.targets
    assert without.valid_loss_before is None
    assert state.metrics is not None
    assert state.metrics.valid_loss is not None
    assert state.valid_loss_before is not None
    assert state.valid_loss_before > state.metrics.valid_loss


def test_a_stop_while_the_first_validation_runs_leaves_a_run_that_never_began(rig: Rig) -> None:
    rig.parts = replace(rig.parts, evaluation=evaluation(rig, stopping_validation(rig, after=0)))

    state, finished = rig.run()

    assert (state.step, state.valid_loss_before, finished) == (0, None, False)
    assert (rig.engine.updates, rig.saves.kinds) == (0, [])


def test_a_run_that_goes_on_is_not_measured_as_if_it_began(rig: Rig) -> None:
    rig.parts = replace(rig.parts, evaluation=evaluation(rig, lambda: iter([BATCH])))

    begun = TrainingState(step=2, consumed_samples=4, tokens=None, valid_loss_before=7.5)
    state, _ = rig.run(begun)

    assert (state.step, state.valid_loss_before, state.tokens) == (3, 7.5, None)


def test_a_stop_while_a_step_is_prepared_leaves_the_state_as_it_was(rig: Rig) -> None:
    first, _ = rig.run()

    def stop(_: int) -> None:
        rig.rundir.stop.touch()
        rig.feed.stopped = True

    rig.feed.before = stop
    rig.parts = replace(rig.parts, spec=replace(rig.parts.spec, total_steps=5))
    state, finished = rig.run(first)

    assert (state, finished) == (first, False)
    assert rig.engine.updates == 3
    assert rig.saves.kinds == []


def evaluation(rig: Rig, batches: Callable[[], Iterator[Batch]]) -> LossEvaluation:
    """On these batches."""
    return LossEvaluation(rig.engine, batches, lambda: rig.parts.flag_sync.sync_flags().is_stopping)


def stopping_validation(rig: Rig, after: int) -> Callable[[], Iterator[Batch]]:
    """Return a validation that requests a stop if the engine has made ``after`` updates."""

    def batches() -> Iterator[Batch]:
        if rig.engine.updates == after:
            rig.rundir.stop.touch()
        yield BATCH

    return batches
