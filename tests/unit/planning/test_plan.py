"""Plans: the cheapest offering on which the run fits, and an honest refusal where none does."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.choices import Engine
from service.domain.cloud.fleet import Offering, Price
from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.performance.memory import GIB
from service.domain.performance.vm_catalogue import lookup
from service.domain.planning.option import Option
from service.domain.planning.plan import Plan, make_plan
from service.domain.planning.plan_request import Offer, PlanRequest
from service.domain.states import CapacityType
from service.domain.training.recipe import Hyperparameters, Training
from trainer.contract import Dpo, Lora

ND = "Standard_ND96amsr_A100_v4"
ND40 = "Standard_ND96asr_v4"
NC24 = "Standard_NC24ads_A100_v4"
TINY = Architecture.from_config(
    {
        "model_type": "llama",
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
        "vocab_size": 1024,
        "intermediate_size": 384,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
)
LLAMA_8B = Architecture.from_config(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "max_position_embeddings": 8192,
    }
)
LLAMA_70B = Architecture.from_config(
    {
        "model_type": "llama",
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 80,
        "vocab_size": 128256,
        "intermediate_size": 28672,
        "max_position_embeddings": 8192,
    }
)
LORA = Lora(rank=16, alpha=32, dropout=0.05)
PREFERRING = Training(method="dpo", dpo=Dpo(beta=0.1))
REWARDING = Training(method="reward")
PACKED = Training(packing=True)
QLORA = replace(LORA, quantized=True)
OFFLOADED = Training(max_seq_len=2048, offload="optimizer")


def offer(
    vm_size: str = ND,
    hourly: str | None = "3.60",
    *,
    region: str = "eastus",
    capacity_type: CapacityType = CapacityType.SPOT,
    evictions_per_hour: float = 0.0,
    engine: Engine = Engine.SCALE_SET,
) -> Offer:
    price = None
    if hourly is not None:
        price = Price(hourly=Decimal(hourly), on_demand_hourly=Decimal("32.77"))
    return Offer(
        offering=Offering(
            region=region, vm_size=vm_size, capacity_type=capacity_type, engine=engine
        ),
        price=price,
        evictions_per_hour=evictions_per_hour,
    )


REQUEST = PlanRequest(
    arch=LLAMA_8B,
    hyperparameters=Hyperparameters(batch_size=64, n_epochs=3),
    training=Training(max_seq_len=2048),
    examples=10_000,
    mean_tokens=600,
    offers=(offer(),),
)


def test_the_cheapest_place_for_the_whole_job_is_chosen_and_it_says_why() -> None:
    dear, cheap = offer(hourly="4.00"), offer(hourly="3.00", region="westus2")

    plan = make_plan(replace(REQUEST, offers=(dear, cheap)))

    assert [o.offering.region for o in plan.options] == ["westus2", "eastus"]
    assert "westus2" in plan.why
    assert "cheapest of 2" in plan.why


def test_evictions_can_make_the_cheaper_hour_the_dearer_job() -> None:
    restless = offer(hourly="3.00", region="restless", evictions_per_hour=3.0)
    calm = offer(hourly="3.60", region="calm", evictions_per_hour=0.01)

    plan = make_plan(replace(REQUEST, offers=(restless, calm)))

    assert plan.chosen.offering.region == "calm"
    assert plan.options[1].expected_evictions > 1


def test_in_azure_ml_no_notice_is_counted_on_and_one_saves_more_often() -> None:
    def option_on(engine: Engine) -> Option:
        offers = (offer(evictions_per_hour=0.1, engine=engine),)
        return make_plan(replace(REQUEST, arch=TINY, training=Training(), offers=offers)).chosen

    with_notice, without_notice = option_on(Engine.SCALE_SET), option_on(Engine.AZUREML)

    assert with_notice.cadence
    assert with_notice.cadence.answered > 0
    assert without_notice.cadence == replace(with_notice.cadence, answered=0.0)
    assert without_notice.checkpoint_seconds <= with_notice.checkpoint_seconds


def test_on_demand_is_not_evicted_and_spot_evicted_faster_than_it_recovers_is_rejected() -> None:
    on_demand = offer(capacity_type=CapacityType.ON_DEMAND, evictions_per_hour=6.0)

    assert make_plan(replace(REQUEST, offers=(on_demand,))).chosen.expected_evictions == 0

    non_retryable = offer(region="non_retryable", evictions_per_hour=6.0)
    plan = make_plan(replace(REQUEST, offers=(non_retryable, offer())))
    assert [o.offering.region for o in plan.options] == ["eastus"]
    assert "non_retryable" in plan.rejected[0]
    assert "evicted faster" in plan.rejected[0]


def test_every_option_can_run_the_chosen_layout_so_that_a_job_may_move_there() -> None:
    small_run = replace(REQUEST, training=Training(max_seq_len=1024, lora=LORA))
    offers = (offer(ND), offer(ND40), offer(NC24, "0.40"))

    plan = make_plan(replace(small_run, offers=offers))

    assert {o.processes_per_node for o in plan.options} == {plan.chosen.processes_per_node}
    assert {(o.nodes, o.zero_stage, o.micro_batch) for o in plan.options} == {
        (plan.chosen.nodes, plan.chosen.zero_stage, plan.chosen.micro_batch)
    }
    assert plan.alternatives
    for option in plan.options:
        sku = lookup(option.offering.vm_size)
        assert sku is not None
        assert option.memory.needed <= sku.gpu_memory_gib * GIB


def test_an_offering_without_a_price_is_passed_over() -> None:
    plan = make_plan(replace(REQUEST, offers=(offer(hourly=None, region="nowhere"), offer())))

    assert plan.chosen.offering.region == "eastus"
    assert plan.rejected == (f"{ND} in nowhere (spot) has no price in the price list",)


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ((), "no offering is configured"),
        ((offer(hourly=None),), "has no price"),
        ((offer("Standard_D2s_v5"),), "not in the catalogue"),
        ((offer(evictions_per_hour=60.0),), "evicted faster"),
    ],
)
def test_nowhere_to_run_is_refused_with_the_reason(
    offers: tuple[Offer, ...], expected: str
) -> None:
    with pytest.raises(InvalidRequest, match=expected) as refused:
        make_plan(replace(REQUEST, offers=offers))

    assert refused.value.code == "no_offering"


def test_what_cannot_fit_is_refused_with_the_shortage_and_what_would_help() -> None:
    request = replace(REQUEST, arch=LLAMA_70B, nodes=1)

    with pytest.raises(InvalidRequest) as refused:
        make_plan(request)

    assert refused.value.code == "plan_does_not_fit"
    assert "GiB too large" in refused.value.message
    assert "nodes" in refused.value.message
    assert "LoRA" in refused.value.message


def test_advice_that_is_followed_works() -> None:
    long_rows = replace(
        REQUEST,
        nodes=1,
        training=Training(max_seq_len=8192, micro_batch=1, gradient_checkpointing=False),
    )
    with pytest.raises(InvalidRequest, match="gradient checkpointing"):
        make_plan(long_rows)

    advised = replace(long_rows.training, gradient_checkpointing=True)
    assert make_plan(replace(long_rows, training=advised)).chosen.nodes == 1


def test_nobody_is_promised_that_packing_saves_time() -> None:
    padded, packed = (make_plan(replace(REQUEST, training=t)) for t in (Training(), PACKED))

    assert packed.recipe == replace(padded.recipe, packing=True)
    assert packed.options == padded.options


def test_a_sequence_of_a_pair_is_held_against_the_longest_not_both_together() -> None:
    training = replace(PREFERRING, max_seq_len=2048)

    fits = make_plan(replace(REQUEST, training=training, mean_tokens=4096))
    plan = make_plan(replace(REQUEST, training=training, mean_tokens=4098))

    assert fits.warnings == ()
    assert "A mean prompt with its output has about 2049 tokens" in plan.warnings[0]


def test_a_model_too_large_for_anything_is_told_to_be_smaller() -> None:
    giant = replace(LLAMA_70B, layers=20_000, parameters=17 * 10**12)

    with pytest.raises(InvalidRequest, match="smaller base model"):
        make_plan(replace(REQUEST, arch=giant))


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (replace(REQUEST, mean_tokens=5000), "cut at 2048"),
        (replace(REQUEST, offers=(offer(hourly="32.77"),)), "as much as on demand"),
        (replace(REQUEST, hyperparameters=Hyperparameters(batch_size=12)), "is 16, not 12"),
    ],
)
def test_what_a_user_should_know_is_pointed_out(request_: PlanRequest, expected: str) -> None:
    assert any(expected in warning for warning in make_plan(request_).warnings)


def test_the_verification_takes_time_and_money_unless_it_is_switched_off() -> None:
    checked = make_plan(REQUEST).chosen
    unchecked = make_plan(replace(REQUEST, training=replace(REQUEST.training, verify=False))).chosen

    assert checked.verify_seconds == pytest.approx(42, abs=1)  # two times 16 GB, and a start
    assert unchecked.verify_seconds == 0
    longer = checked.duration_p50 - unchecked.duration_p50
    assert longer == pytest.approx(checked.verify_seconds)
    assert checked.cost_p50 > unchecked.cost_p50


def test_a_node_count_below_one_names_its_parameter() -> None:
    with pytest.raises(InvalidRequest) as refused:
        make_plan(replace(REQUEST, nodes=0))

    assert refused.value.param == "infrastructure.nodes"


@given(
    lora=st.sampled_from([None, LORA, QLORA]),
    training=st.sampled_from([Training(), PACKED, PREFERRING, REWARDING, OFFLOADED]),
    hazard=st.floats(0, 2),
    hourly=st.decimals(Decimal("0.01"), 100, places=4),
    batch=st.integers(1, 100),
)
def test_a_plan_survives_json(
    lora: Lora | None, training: Training, hazard: float, hourly: Decimal, batch: int
) -> None:
    request = replace(
        REQUEST,
        training=replace(training, lora=lora),
        hyperparameters=Hyperparameters(batch_size=batch),
        offers=(offer(hourly=str(hourly), evictions_per_hour=hazard), offer(NC24, "0.4")),
    )
    plan = make_plan(request)

    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))) == plan


@given(hazard=st.floats(0, 4), examples=st.integers(1, 10**6))
def test_the_careful_forecast_is_never_below_the_expected_one(hazard: float, examples: int) -> None:
    request = replace(REQUEST, offers=(offer(evictions_per_hour=hazard),), examples=examples)

    chosen = make_plan(request).chosen

    assert chosen.duration_p90 >= chosen.duration_p50 > 0
    assert chosen.cost_p90 >= chosen.cost_p50 > 0


def test_a_plan_writes_money_as_decimal_strings_and_leaves_out_defaults() -> None:
    written = make_plan(REQUEST).as_dict()

    assert written["currency"] == "USD"
    assert written["hourly"] == "3.60"
    for key in ("cost_p50", "cost_p90", "on_demand_cost"):
        assert isinstance(written[key], str)
        assert Decimal(written[key]).as_tuple().exponent == -2

    usual = written["recipe"]
    plan = make_plan(replace(REQUEST, training=replace(PREFERRING, packing=True))).as_dict()
    assert {"method", "dpo", "packing", "savings"}.isdisjoint(usual)
    assert plan["recipe"].keys() - usual.keys() == {"method", "dpo", "packing"}
