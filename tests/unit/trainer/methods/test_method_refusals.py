"""Run specs whose members do not go together are refused in a sentence, for any method."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainer.process.trainer_spec import GRADED, SPEC
from trainer.contract import Curriculum, Dpo, Mix, Ranked, RunSpec, SpikeGuard
from trainer.engine.loss_spikes import require_valid_guard
from trainer.methods.classification import ClassificationLoss
from trainer.methods.descriptor import (
    MethodInputs,
    descriptor_of,
    make_method,
    require_valid_method,
)
from trainer.methods.dpo import DpoLoss
from trainer.methods.interface import Method
from trainer.methods.orpo import OrpoLoss
from trainer.process.non_retryable import NonRetryableError

BOTH_ORDERS = {
    "mix": Mix(threshold_tokens=40),
    "curriculum": Curriculum(until_step=4, start_share=0.25),
}
RANKED = {"method": "reward", "ranked": Ranked(), "answers_per_row": 3}
LABELS = {"method": "classification", "labels": ("bad", "good")}
ORPO = {"method": "orpo", "method_options": '{"beta": 0.3}'}
GUARD = SpikeGuard(factor=3.0, steps=2, window=12)


def made_by(spec: RunSpec) -> Method:
    """Check the spec and make its method, which reads no base."""
    require_valid_method(spec)
    return make_method(MethodInputs(None, Path(), spec, {}))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (BOTH_ORDERS, "one order"),
        ({"method": "reward", "packing": True}, "pads its rows"),
        ({"method": "reward", "loss_chunk": 16}, "leave out `loss_chunk`"),
        (LABELS | {"labels": ("good",)}, "labels"),
        (LABELS | {"method": "supervised"}, "labels"),
        (RANKED | {"method": "supervised"}, "rank|answers"),
        (RANKED | {"ranked": None}, "rank|answers"),
        (RANKED | {"answers_per_row": 1}, "rank|answers"),
        ({"method": "dpo"}, "dpo"),
        ({"dpo": Dpo(beta=0.1)}, "supervised"),
        ({"method": "kto"}, "does not know method 'kto'"),
        (ORPO | {"method_options": ""}, "method_options"),
        (ORPO | {"method_options": '{"beta": 0.1, "lambda": 1}'}, "method_options"),
        (ORPO | {"method_options": '{"beta": "0.1"}'}, "method_options"),
        (ORPO | {"method": "supervised"}, "method_options"),
    ],
)
def test_members_that_do_not_go_together_are_refused(
    members: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        made_by(replace(SPEC, **members))


def test_a_loss_of_preferences_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="use sigmoid or ipo"):
        DpoLoss(Dpo(beta=0.1, loss="hinge"), lambda batch: batch.labels)


@pytest.mark.parametrize(("members", "expected"), [(LABELS, ClassificationLoss), (ORPO, OrpoLoss)])
def test_the_run_spec_makes_its_method(members: dict[str, Any], expected: type) -> None:
    spec = replace(SPEC, **members)

    assert isinstance(made_by(spec), expected)
    assert descriptor_of(spec).one_pass
    assert spec.sequences_per_row == (2 if expected is OrpoLoss else 1)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"spike_guard": replace(GUARD, on_spike="cry")}, "on_spike 'cry' is not known"),
        ({"spike_guard": replace(GUARD, factor=1.0)}, "more than 1 times the median"),
        ({"spike_guard": replace(GUARD, window=3)}, "the median of 10 steps or more"),
        (
            {"method": "reinforcement", "reinforcement": GRADED, "spike_guard": GUARD},
            "made of advantages",
        ),
    ],
)
def test_a_guard_that_cannot_tell_a_spike_is_refused(
    members: dict[str, Any], expected: str
) -> None:
    with pytest.raises(NonRetryableError, match=expected):
        require_valid_guard(replace(SPEC, **members))
