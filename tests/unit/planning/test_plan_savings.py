"""Plans of jobs that spend less memory: what they need, what they take, and what is advised."""

import json
from dataclasses import replace

import pytest

from service.domain.errors import InvalidRequest
from service.domain.planning.plan import Plan, make_plan
from service.domain.training.recipe import Training
from tests.unit.planning.test_plan import (
    LLAMA_70B,
    LORA,
    NC24,
    ND40,
    OFFLOADED,
    REQUEST,
    offer,
)

LAST = Training(train_last_n_layers=2, train_embeddings=False, loss_chunk=512)


def test_what_the_host_cannot_hold_is_no_plan_either() -> None:
    offloaded = replace(REQUEST, nodes=1, offers=(offer(NC24, "0.4"),), training=OFFLOADED)

    with pytest.raises(InvalidRequest, match="each host needs 164") as refused:
        make_plan(offloaded)

    assert "(40% kept free) of 132" in refused.value.message


def test_who_lacks_little_is_advised_to_offload_the_optimizer() -> None:
    request = replace(REQUEST, arch=LLAMA_70B, nodes=3, offers=(offer(ND40, "9"),))

    with pytest.raises(InvalidRequest, match="the optimizer offloaded"):
        make_plan(request)

    chosen = make_plan(replace(request, training=OFFLOADED)).chosen
    assert chosen.memory.optimizer == 0
    assert chosen.memory.host > 0


def test_what_a_plan_saves_is_read_again_and_the_usual_is_left_out() -> None:
    saving = make_plan(replace(REQUEST, training=LAST))
    adapters = make_plan(replace(REQUEST, training=Training(lora=LORA))).as_dict()["recipe"]

    assert Plan.from_dict(json.loads(json.dumps(saving.as_dict()))).recipe.options == LAST.options
    assert adapters["lora"] == {"rank": 16, "alpha": 32, "dropout": 0.05}
