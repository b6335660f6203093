"""What is compared in a verification, within which bounds, and what the user is told."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.nodes.scripted_node import metrics
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer
from tests.unit.trainer.process.trainer_spec import GRADED, SPEC
from trainer.contract import RunSpec
from trainer.engine import ema
from trainer.export.finalize import no_better_message
from trainer.rundir import RunDir
from trainer.sample_data.tiny_chats import write_preferences, write_prompts, write_samples
from trainer.state import TrainingState
from trainer.verify.checks import ExpectedExport
from trainer.verify.launcher import run_verification
from trainer.verify.loading import NoMemoryError, choose_device
from trainer.verify.result import NOT_VERIFIED, Comparison
from trainer.verify.rows import SEQUENCES, TOKENS, VerificationRow, VerificationRows, choose_rows
from trainer.verify.scores import mean_difference, mean_loss
from trainer.verify.tokenizer_facts import TokenizerFacts

GIB = 1 << 30
FACTS = TokenizerFacts(vocabulary={}, added={}, special={}, template="", program="")
METRICS = metrics(12)


def chosen(
    folder: Path, write: Callable[..., object], count: int, spec: RunSpec, *, by_score: bool = False
) -> list[VerificationRow]:
    """Write so many rows and choose those that are scored."""
    path = folder / "rows.jsonl"
    write(path, rows=count, seed=1)
    source = VerificationRows(path, path / "no tokens", tiny_tokenizer(), spec)
    return choose_rows(source, spec, by_score=by_score)


def test_a_few_rows_of_the_whole_file_are_scored(tmp_path: Path) -> None:
    rows = chosen(tmp_path, write_samples, 500, SPEC)

    assert len(rows) == SEQUENCES
    assert sum(row.length for row in rows) <= TOKENS
    assert rows[-1].number > 100  # not only the first ones
    assert all(row.positions for row in rows)


def test_pairs_stay_together(tmp_path: Path) -> None:
    spec = replace(SPEC, method="reward")
    rows = chosen(tmp_path, write_preferences, 50, spec, by_score=True)

    numbers = [row.number for row in rows]
    assert [n // 2 for n in numbers[::2]] == [n // 2 for n in numbers[1::2]]


def test_of_prompts_every_token_is_scored(tmp_path: Path) -> None:
    spec = replace(SPEC, method="reinforcement", reinforcement=GRADED)
    rows = chosen(tmp_path, write_prompts, 5, spec)

    assert len(rows) == 5
    assert all(row.positions == list(range(1, len(row.ids))) for row in rows)


def test_rows_whose_answers_lie_beyond_the_bound_are_scored_on_their_other_tokens(
    tmp_path: Path,
) -> None:
    rows = chosen(tmp_path, write_samples, 5, replace(SPEC, loss_chunk=3))

    assert [row.length for row in rows] == [3] * 5
    assert all(row.positions == [1, 2] for row in rows)


def test_differences_that_cancel_in_the_mean_are_seen() -> None:
    first_losses, second_losses = [[1.0, 3.0]], [[3.0, 1.0]]

    assert mean_loss(first_losses, [], SPEC) == mean_loss(second_losses, [], SPEC)
    assert mean_difference(first_losses, second_losses) == 2.0


def test_what_is_not_a_number_never_agrees() -> None:
    assert mean_difference([[float("nan")]], [[1.0]]) is None
    comparison = Comparison(
        what="model", against="trainer", loss=None, expected=1.0, difference=None, tolerance=1.0
    )
    assert not comparison.agrees


@pytest.mark.parametrize(
    ("gpu", "host", "device"),
    [(20 * GIB, 0, "cuda:0"), (10 * GIB, 20 * GIB, "cpu"), (0, 20 * GIB, "cpu")],
)
def test_a_model_is_loaded_where_it_has_room(
    tmp_path: Path, gpu: int, host: int, device: str
) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(10 * GIB)  # a hole: it takes no room

    assert choose_device(tmp_path, "cuda:0", gpu, host) == device
    with pytest.raises(NoMemoryError, match=r"needs 14\.0 GB of memory .* 10\.7 GB of the GPU's"):
        choose_device(tmp_path, "cuda:0", 10 * GIB, 10 * GIB)


def expected(rundir: RunDir, rows: tuple[VerificationRow, ...]) -> ExpectedExport:
    return ExpectedExport(
        model=str(rundir.root),
        base=str(rundir.root),
        data="rows.jsonl",
        rows=rows,
        values=((1.0,),) * len(rows),
        dtypes=("BF16",),
        tokenizer=FACTS,
        pad_token=None,
        device="cpu",
        exact=True,
        gpu_memory=0,
        host_memory=0,
    )


ROW = VerificationRow(number=0, ids=(1, 2), trained=(False, True), length=2)


def test_without_a_row_nothing_is_verified(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    verification = run_verification(rundir, expected(rundir, ()))

    assert (verification.status, verification.reason) == (
        NOT_VERIFIED,
        "rows.jsonl has no row to score",
    )


def test_a_verification_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    verification = run_verification(rundir, expected(rundir, (ROW,)), limit=0.01)

    assert verification.status == NOT_VERIFIED
    assert "it took longer than 0 seconds" in verification.reason


def test_a_process_that_ends_without_a_result_verifies_nothing(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)  # without a run spec
    verification = run_verification(rundir, expected(rundir, (ROW,)))

    assert verification.status == NOT_VERIFIED
    assert verification.reason == "the verifying process ended with status 1 and no result"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (2.0, 1.9, ""),
        (2.0, 2.0, "its loss is 2.0000, before the first step it was 2.0000"),
        (2.0, 2.5, "its loss is 2.5000, before the first step it was 2.0000"),
        (None, 2.5, ""),
        (2.0, None, ""),
        (-0.3, -0.2, "its reward is 0.2000, before the first step it was 0.3000"),
    ],
)
def test_a_tuned_model_that_is_no_better_than_its_base_is_told(
    before: float | None, after: float | None, expected: str
) -> None:
    state = TrainingState(
        step=12, metrics=replace(METRICS, valid_loss=after), valid_loss_before=before
    )

    text = no_better_message(state, graded="reward" in expected)

    assert (expected in text) if expected else text == ""


class _Engine:
    """Holds one parameter of 5 elements, as a DeepSpeed engine of stage 0 does."""

    def __init__(self) -> None:
        self.module = torch.nn.Linear(5, 1, bias=False)
        self.optimizer = torch.optim.AdamW(self.module.parameters())

    def zero_optimization_stage(self) -> int:
        return 0


def test_an_average_that_was_adopted_can_be_taken_back() -> None:
    engine = _Engine()
    before = engine.module.weight.detach().clone()
    ema.start_average(engine)
    with torch.no_grad():
        engine.module.weight.add_(1.0)

    ema.swap_average(engine)
    assert torch.equal(engine.module.weight, before)
    ema.swap_average(engine)
    assert torch.equal(engine.module.weight, before + 1.0)
