"""A run that learns nothing fails, as early as it can be known; what measures nothing is null."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from rendering.tokens import Tokens
from tests.nodes.scripted_node import metrics
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer
from tests.unit.trainer.process.test_loop import BATCH, Feed, Rig, evaluation, make_rig
from tests.unit.trainer.process.trainer_spec import FILE, GRADED, ME, SPEC
from trainer.contract import Dpo as Settings
from trainer.contract import Ranked, RunSpec, StepMetrics
from trainer.data.batch import Batch, padded
from trainer.data.prefetch import BatchPrefetcher as RowFeed
from trainer.data.step_input import FileStepSource
from trainer.data.tokens import TokenizedOnDemand
from trainer.engine.evaluation import LossEvaluation
from trainer.engine.progress_check import NothingLearnedError, require_learned, require_rate
from trainer.loop import train
from trainer.methods.dpo import DpoLoss
from trainer.methods.interface import Method
from trainer.methods.reward import RankingLoss, RewardLoss
from trainer.methods.supervised import SupervisedLoss
from trainer.process.non_retryable import NonRetryableError
from trainer.rollout.reward_metrics import RewardSums
from trainer.state import TrainingState

pytestmark = pytest.mark.usefixtures("world_of_one")
CUT = padded([Tokens([1, 2, 3], [False, False, False])], pad_id=0)
STILL = replace(metrics(1), grad_norm=0.0)
SPOKEN = replace(SPEC, total_steps=4, global_batch=2, micro_batch=1, checkpoint_seconds=1e9)


def metrics_of(rig: Rig) -> list[StepMetrics]:
    lines = rig.rundir.metrics.read_text().splitlines()
    return [StepMetrics.from_json(line) for line in lines]


def alternating(rig: Rig, steps: dict[int, list[Batch]]) -> None:
    """Give these batches at these cursors, and trained ones elsewhere."""

    def choose(cursor: int) -> None:
        rig.feed.batches = steps.get(cursor, [BATCH, BATCH])

    rig.feed.before = choose


def test_a_step_without_a_target_updates_nothing_and_has_no_loss(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, SPOKEN)
    alternating(rig, {0: [CUT, CUT], 2: [CUT, CUT]})

    state, finished = rig.run()

    metrics = metrics_of(rig)
    assert finished
    assert [math.isnan(m.loss) for m in metrics] == [True, True, False, False]
    assert [math.isnan(m.accuracy) for m in metrics] == [True, True, False, False]
    assert [m.tokens for m in metrics] == [0, 0, 4, 4]
    assert (rig.engine.updates, rig.engine.micro_steps, state.tokens) == (2, 8, 8)
    assert not state.unmoved


def test_a_stop_during_a_step_without_a_target_drops_it(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, SPOKEN)
    rig.feed.batches, rig.feed.before = [CUT, CUT], lambda _: rig.rundir.stop.touch()
    begun = TrainingState(step=2, consumed_samples=4, tokens=8)

    assert rig.run(begun) == (begun, False)
    assert rig.saves.kinds == []


def test_a_step_is_the_mean_over_its_tokens_however_they_lie_in_micro_batches(
    tmp_path: Path,
) -> None:
    short, long = Tokens([1, 2], [False, True]), Tokens([3, 0, 1, 2, 1], [False, *[True] * 4])
    weights = []
    for number, parts in enumerate(([[short], [long]], [[short, long], []])):
        (folder := tmp_path / str(number)).mkdir()
        rig = make_rig(folder, replace(SPOKEN, total_steps=1))
        rig.feed.batches = [padded(micro_batch, pad_id=0) for micro_batch in parts]
        torch.manual_seed(0)
        rig.engine.module.reset_parameters()
        rig.run()
        weights.append([p.detach().clone() for p in rig.engine.module.parameters()])

    for apart, together in zip(*weights, strict=True):
        assert torch.allclose(apart, together, atol=1e-6)


def test_a_run_whose_gradients_are_all_zero_is_warned_of_and_fails_at_its_end(
    tmp_path: Path,
) -> None:
    rig = make_rig(tmp_path, replace(SPOKEN, total_steps=12))
    rig.engine.backward = lambda loss, **_: (0 * loss).backward()  # type: ignore[method-assign]

    with pytest.raises(NothingLearnedError, match=r"none of the 12 steps so far .* gradient was 0"):
        rig.run()

    assert "10 steps" in (rig.rundir.warnings / "unmoved.txt").read_text()
    assert len(metrics_of(rig)) == 12


def test_what_earlier_generations_have_learnt_counts(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, SPOKEN)
    alternating(rig, {6: [CUT, CUT]})

    moved = TrainingState(step=3, consumed_samples=6, tokens=100)
    _, finished = rig.run(moved)
    still = replace(moved, unmoved=True)

    assert finished
    with pytest.raises(NothingLearnedError):
        train(replace(rig.parts, source=Feed([CUT, CUT])), still)


def test_answers_of_one_reward_in_every_step_teach_nothing(tmp_path: Path) -> None:
    spec = replace(SPOKEN, method="reinforcement", reinforcement=GRADED, total_steps=1)
    rig = make_rig(tmp_path, spec)
    rig.feed.figures = RewardSums(answers=8, grades=8.0, squares=8.0, tokens=16)

    with pytest.raises(NothingLearnedError, match=r"the same reward in each\. Use a grader"):
        rig.run()

    rig.feed.figures = replace(rig.feed.figures, uneven=1)
    assert rig.run()[1]


def test_answers_that_cannot_be_graded_are_a_warning_that_names_the_line(tmp_path: Path) -> None:
    spec = replace(SPOKEN, method="reinforcement", reinforcement=GRADED, total_steps=1)
    rig = make_rig(tmp_path, spec)
    rig.feed.figures = RewardSums(
        answers=8, grades=3.0, uneven=1, tokens=16, errors=2, error="train.jsonl, line 3: oh"
    )
    rig.run()

    warning = (rig.rundir.warnings / "grader.txt").read_text()
    assert warning.startswith("2 of 8 answers could not be graded")
    assert "train.jsonl, line 3: oh" in warning


@pytest.mark.parametrize("batches", [[], [CUT]], ids=["no rows", "no targets"])
def test_a_validation_without_targets_is_null_everywhere(
    tmp_path: Path, batches: list[Batch]
) -> None:
    rig = make_rig(tmp_path, replace(SPOKEN, validation_file=FILE, eval_steps=2))
    rig.parts = replace(rig.parts, evaluation=evaluation(rig, lambda: iter(batches)))

    state, finished = rig.run()

    assert finished
    assert state.valid_loss_before is None
    assert [m.valid_loss for m in metrics_of(rig)] == [None] * 6  # two are told twice
    assert (
        "Nothing is validated: train.jsonl"
        in (rig.rundir.warnings / "no_validation.txt").read_text()
    )


def test_a_validation_that_diverges_is_not_taken_for_one_without_targets(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, SPOKEN)
    with torch.no_grad():
        rig.engine.module.weight.fill_(math.nan)

    assert evaluation(rig, lambda: iter([BATCH, CUT]))(SupervisedLoss()) == math.inf


def test_rows_without_targets_do_not_dilute_a_validation(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, SPOKEN)
    alone, among = (
        LossEvaluation(rig.engine, partial(iter, batches), lambda: False)(SupervisedLoss())
        for batches in ([BATCH], [CUT, BATCH, CUT])
    )

    assert alone == among


def test_a_learning_rate_of_nothing_is_refused_before_the_first_step() -> None:
    with pytest.raises(NothingLearnedError, match="learning rate is 0 in all 12 steps"):
        require_rate(replace(SPEC, learning_rate=0.0))
    require_rate(SPEC)


def chat(answer: str, weight: int = 1, question: str = "Hm?") -> list[dict[str, object]]:
    message = {"role": "assistant", "content": answer}
    return [{"role": "user", "content": question}, message | ({} if weight else {"weight": 0})]


def pair(preferred: str, rejected: str, question: str = "Hm?") -> dict[str, object]:
    return {
        "input": {"messages": chat("", question=question)[:1]},
        "preferred_output": chat(preferred)[1:],
        "non_preferred_output": chat(rejected)[1:],
    }


LONG = "so " * 200
WITHOUT = {
    "cut off": ("supervised", {"messages": chat("Yes.", question=LONG)}),
    "weight 0": ("supervised", {"messages": chat("Yes.", weight=0)}),
    "pairs cut off": ("dpo", pair("Yes.", "No.", question=LONG)),
    "equal pairs": ("dpo", pair("Yes.", "Yes.")),
    "equal where they are cut": ("dpo", pair(LONG + "Yes.", LONG + "No.")),
    "rewards cut off": ("reward", pair("Yes.", "No.", question=LONG)),
    "equal rewards": ("reward", pair("Yes.", "Yes.")),
    "equal rankings": (
        "ranked",
        {"input": {"messages": chat("")[:1]}, "ranked_outputs": [chat("Yes.")[1:]] * 3},
    ),
}
TAUGHT = {
    "supervised": {"messages": chat("Yes.")},
    "dpo": pair("Yes.", "No."),
    "reward": pair("Yes.", "No."),
    "ranked": {
        "input": {"messages": chat("")[:1]},
        "ranked_outputs": [chat(said)[1:] for said in ("Yes.", "Yes.", "No.")],
    },
}


def learning_from(rows: list[object], method: str, folder: Path, *, packing: bool) -> Rig:
    """Return a rig with the real feed and a method whose loss needs no model."""
    path = folder / "train.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    spec = replace(
        SPOKEN,
        method="reward" if method == "ranked" else method,
        answers_per_row=3 if method == "ranked" else 2,
        max_seq_len=64,
        packing=packing,
        total_steps=8,
    )
    rig = make_rig(folder, spec)
    feed = FileStepSource(RowFeed(TokenizedOnDemand(path, tiny_tokenizer(), spec), 0, spec, ME))
    methods: dict[str, Callable[[], Method]] = {
        "supervised": SupervisedLoss,
        "dpo": lambda: DpoLoss(Settings(beta=0.1), lambda batch: torch.zeros(batch.targets)),
        "reward": RewardLoss,
        "ranked": lambda: RankingLoss(Ranked(), 3, 12),
    }
    rig.parts = replace(rig.parts, source=feed, method=methods[method]())
    return rig


@pytest.mark.parametrize(
    ("case", "packing"), [*((case, False) for case in WITHOUT), ("pairs cut off", True)]
)
def test_rows_that_teach_nothing_end_the_run_before_its_second_step(
    tmp_path: Path, case: str, packing: bool
) -> None:
    method, row = WITHOUT[case]
    rig = learning_from([row] * 5, method, tmp_path, packing=packing)

    with pytest.raises(NothingLearnedError, match=r"train\.jsonl: within 64 tokens"):
        rig.run()

    assert rig.engine.updates == 0
    assert issubclass(NothingLearnedError, NonRetryableError)


@pytest.mark.parametrize("case", ["cut off", "equal pairs", "equal rewards", "equal rankings"])
def test_one_row_that_teaches_is_enough_to_go_on(tmp_path: Path, case: str) -> None:
    method, row = WITHOUT[case]
    rig = learning_from([row] * 5 + [TAUGHT[method]], method, tmp_path, packing=False)
    units = sum(rig.parts.source.units(TrainingState(), rig.parts.method.units))

    assert units == (3 if method == "supervised" else 1)


def test_rows_that_a_short_run_never_reaches_do_not_save_it(tmp_path: Path) -> None:
    rows = [WITHOUT["cut off"][1]] * 40 + [TAUGHT["supervised"]] * 2
    rig = learning_from(rows, "supervised", tmp_path, packing=False)
    rig.parts = replace(rig.parts, spec=replace(rig.parts.spec, total_steps=2))
    short: RunSpec = rig.parts.spec
    feed = FileStepSource(
        RowFeed(TokenizedOnDemand(tmp_path / "train.jsonl", tiny_tokenizer(), short), 0, short, ME)
    )
    rig.parts = replace(rig.parts, source=feed)

    with pytest.raises(NothingLearnedError):
        rig.run()


def test_that_nothing_was_learnt_so_far_is_remembered_until_a_step_teaches() -> None:
    first = TrainingState().after_step(2, STILL, moved=False)
    second = first.after_step(2, STILL, moved=False)
    three = second.after_step(2, STILL, moved=True)
    four = three.after_step(2, STILL, moved=False)

    assert [state.unmoved for state in (first, second, three, four)] == [True, True, False, False]


def test_gradients_that_all_overflow_in_fp16_are_told_from_gradients_of_zero() -> None:
    first = TrainingState().after_step(2, replace(STILL, skipped=True), moved=False)

    with pytest.raises(NothingLearnedError, match="have overflowed in fp16"):
        require_learned(SPEC, first)
