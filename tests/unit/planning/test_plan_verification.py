"""Plans count what it takes to verify the result."""

from dataclasses import replace

import pytest

from service.domain.planning.plan import make_plan
from tests.unit.planning.test_plan import REQUEST
from trainer.contract import Lora


def test_the_verification_takes_time_and_money_unless_it_is_switched_off() -> None:
    checked = make_plan(REQUEST).chosen
    training = replace(REQUEST.training, verify=False)
    unchecked = make_plan(replace(REQUEST, training=training)).chosen

    assert checked.verify_seconds == pytest.approx(42, abs=1)  # two times 16 GB, and a start
    assert unchecked.verify_seconds == 0
    longer = checked.duration_p50 - unchecked.duration_p50
    assert longer == pytest.approx(checked.verify_seconds)
    assert checked.cost_p50 > unchecked.cost_p50


def test_a_quantized_base_is_loaded_in_four_bits_as_well() -> None:
    lora = Lora(rank=16, alpha=32, dropout=0.0)
    plain, quantized = (
        make_plan(replace(REQUEST, training=replace(REQUEST.training, lora=one))).chosen
        for one in (lora, replace(lora, quantized=True))
    )

    start = 10.0
    assert (quantized.verify_seconds - start) / (plain.verify_seconds - start) == pytest.approx(1.5)
