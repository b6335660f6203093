"""Plans of a service whose machines are emulated on one computer."""

from dataclasses import replace

import pytest

from service.domain.errors import InvalidRequest
from service.domain.extras import Extras
from service.domain.plan import make_plan
from service.domain.recipe import Training
from tests.unit.test_plan import REQUEST, TINY


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


def test_a_plan_on_cpus_of_machines_that_azure_bills_never_says_that_nothing_is_charged() -> None:
    billed = replace(REQUEST, arch=TINY, training=Training(precision="fp32"), accelerator="cpu")

    assert not any("nothing is charged" in warning for warning in make_plan(billed).warnings)


def test_what_only_gpus_can_do_is_refused_before_machines_on_a_service_of_cpus() -> None:
    training = Training(zero_stage=3, extras=Extras(zero_plus_plus="hpz"))
    request = replace(REQUEST, arch=TINY, training=training, accelerator="cpu")

    with pytest.raises(InvalidRequest, match="needs GPUs") as refused:
        make_plan(request)

    assert refused.value.param == "training.zero_plus_plus"
