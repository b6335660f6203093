"""What a plan suggests: each change does what is promised, and nothing that cannot be planned."""

from dataclasses import replace

from rendering.report import DataReport
from service.domain.planning.plan import make_plan
from service.domain.planning.plan_limits import PlanLimits
from service.domain.planning.plan_request import PlanRequest
from service.domain.planning.suggestions import Suggestion, suggestions
from service.domain.training.recipe import Training
from tests.unit.planning.test_plan import LLAMA_70B, LORA, REQUEST

SKEWED = DataReport(
    rows=200_000,
    examples=200_000,
    sequences=200_000,
    tokens=29_500_000,
    kept_tokens=29_500_000,
    trained_tokens=10_000_000,
    lengths=(50,) * 19 + (2000,),
    longest=2000,
    splits_answers=False,
)
MANY_SHORT = replace(
    REQUEST, data=SKEWED, examples=200_000, mean_tokens=148, training=Training(lora=LORA)
)


def suggested(request: PlanRequest) -> dict[str, Suggestion]:
    """Return the suggestions that make the job faster, by their change."""
    found = suggestions(request, make_plan(request))
    return {each.change: each for each in found if each.aim == "faster"}


def test_a_change_of_the_training_takes_what_a_plan_with_it_takes() -> None:
    packed = make_plan(replace(MANY_SHORT, training=Training(lora=LORA, packing=True))).chosen
    found = suggested(MANY_SHORT)["training.packing true"]

    assert found.duration_p50 == packed.duration_p50
    assert found.duration_p50 < make_plan(MANY_SHORT).chosen.duration_p50


def test_adapters_are_suggested_where_training_all_weights_is_slower() -> None:
    whole = replace(REQUEST, arch=LLAMA_70B)
    adapters = replace(whole, training=Training(lora=LORA))

    assert any("adapter" in change for change in suggested(whole))
    assert not any("adapter" in change for change in suggested(adapters))


def test_a_shorter_sequence_says_how_many_it_cuts() -> None:
    few = replace(SKEWED, lengths=(500,) * 19 + (8000,), longest=8000, tokens=175_000_000)
    long = Training(lora=LORA, max_seq_len=8192)
    request = replace(MANY_SHORT, data=few, mean_tokens=875, training=long)

    assert "training.max_seq_len 512 (cuts 5% of the sequences)" in suggested(request)


def test_at_most_three_of_each_aim_are_shown_best_first() -> None:
    found = suggestions(MANY_SHORT, make_plan(MANY_SHORT))
    for aim, member in (("cheaper", "cost_p50"), ("faster", "duration_p50")):
        gains = [float(getattr(each, member)) for each in found if each.aim == aim]
        assert gains == sorted(gains)
        assert 1 <= len(gains) <= 3


def test_nothing_beyond_the_budget_is_suggested() -> None:
    whole = replace(REQUEST, arch=LLAMA_70B)
    tight = replace(whole, limits=PlanLimits(budget=make_plan(whole).chosen.cost_p90 * 2))

    assert any("checkpointing" in change for change in suggested(whole)), "which costs 4 times"
    assert not any("checkpointing" in change for change in suggested(tight))
