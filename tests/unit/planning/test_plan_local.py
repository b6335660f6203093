"""Plans of a service whose machines are emulated on one computer."""

from dataclasses import replace
from typing import Literal

import pytest

from service.domain.errors import InvalidRequest
from service.domain.planning.plan import make_plan
from service.domain.training.recipe import Training
from tests.unit.planning.test_plan import REQUEST, TINY


def test_the_local_stack_plans_on_cpu_with_its_own_processes() -> None:
    request = replace(
        REQUEST,
        arch=TINY,
        training=Training(precision="fp32"),
        accelerator="cpu",
        emulated=True,
        nodes=1,
        processes_per_node=2,
        examples=400,
    )

    plan = make_plan(request)
    chosen = plan.chosen

    assert (chosen.nodes, chosen.processes_per_node, chosen.zero_stage) == (1, 2, 0)
    assert chosen.seconds_per_step > 0
    assert sum("nothing is charged" in warning for warning in plan.warnings) == 1
    assert not any("nothing is charged" in warning for warning in make_plan(REQUEST).warnings)


def test_a_plan_on_cpus_warns_of_half_precision() -> None:
    assert warned("cpu", "fp16", "fp16")
    assert warned("cpu", "bf16", "speed of this computer's CPU in fp32")
    assert not warned("cpu", "fp32", "in fp32")
    assert not any(warned("cuda", precision, "CPU") for precision in ("fp16", "bf16"))


def warned(accelerator: Literal["cpu", "cuda"], precision: str, words: str) -> bool:
    training = Training(precision=precision)
    request = replace(REQUEST, arch=TINY, training=training, accelerator=accelerator)
    return any(words in warning for warning in make_plan(request).warnings)


def test_what_only_gpus_can_do_is_refused_before_machines_on_a_service_of_cpus() -> None:
    training = Training(zero_stage=3, zero_plus_plus=("hpz",))
    request = replace(REQUEST, arch=TINY, training=training, accelerator="cpu")

    with pytest.raises(InvalidRequest, match="needs GPUs") as refused:
        make_plan(request)

    assert refused.value.param == "training.zero_plus_plus"
