"""Presets: the service takes and plans them, and each value has its source."""

import json
from decimal import Decimal
from typing import Any

import pytest
from typer.testing import CliRunner

from contract.job import JobRequest
from rekindle.cli.errors import CliError
from rekindle.cli.main import app
from rekindle.cli.submit.job_config import JobConfig, parse_setting
from rekindle.cli.submit.options import MemberOptions
from rekindle.cli.submit.presets import find_preset, load_presets
from rekindle.cli.submit.request import build_request as merged_request
from service.api.jobs.job_requests import hyperparameters_of, training_of
from service.domain.cloud.fleet import Offering, Price
from service.domain.models.architecture import Architecture
from service.domain.planning.plan import make_plan
from service.domain.planning.plan_request import Offer, PlanRequest
from service.domain.states import CapacityType
from tests.unit.jobs.test_job_requests import parse

FILE = {"training_file": "file-1"}
GRADER = {"type": "exact_answer", "input": "{{ sample.output_text }}", "reference": "{{ item.a }}"}


def shape(model_type: str, numbers: str, **members: object) -> dict[str, Any]:
    """Return a config.json of "hidden layers heads kv_heads intermediate vocabulary positions"."""
    names = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    )
    sizes = dict(zip(names, map(int, numbers.split()), strict=True))
    return {"model_type": model_type, **sizes, **members}


LLAMA_70B = shape("llama", "8192 80 64 8 28672 128256 131072")
SHAPES = {  # as the models' config.json say
    "meta-llama/Llama-3.1-8B-Instruct": shape("llama", "4096 32 32 8 14336 128256 131072"),
    "meta-llama/Llama-3.1-70B-Instruct": LLAMA_70B,
    "meta-llama/Llama-3.3-70B-Instruct": LLAMA_70B,
    "Qwen/Qwen3-8B": shape("qwen3", "4096 36 32 8 12288 151936 40960", head_dim=128),
    "mistralai/Mistral-7B-Instruct-v0.3": shape("mistral", "4096 32 32 8 14336 32768 32768"),
    "google/gemma-2-9b-it": shape("gemma2", "3584 42 16 8 14336 256000 8192", head_dim=256),
    "facebook/opt-30b": shape("opt", "7168 48 56 56 28672 50272 2048"),
    "openai-community/gpt2": shape("gpt2", "768 12 12 12 3072 50257 1024"),
    "google-bert/bert-base-uncased": shape("bert", "768 12 12 12 3072 30522 512"),
}
OFFER = Offer(
    offering=Offering(
        region="eastus", vm_size="Standard_ND96amsr_A100_v4", capacity_type=CapacityType.SPOT
    ),
    price=Price(hourly=Decimal("8.44"), on_demand_hourly=Decimal("32.77")),
)


def request(name: str) -> JobRequest:
    """Return the request that the service parses from the preset alone."""
    body = find_preset(name).body() | FILE
    if body["method"]["type"] == "reinforcement":
        body["method"]["reinforcement"]["grader"] = GRADER
    return parse(json.dumps(body).encode())


@pytest.mark.parametrize("name", load_presets())
def test_the_service_takes_every_preset(name: str) -> None:
    preset_request = request(name)

    assert training_of(preset_request).method == find_preset(name).method
    assert hyperparameters_of(preset_request) is not None


@pytest.mark.parametrize("name", load_presets())
def test_every_preset_has_a_plan_once_its_model_is_staged(name: str) -> None:
    preset_request, arch = request(name), Architecture.from_config(SHAPES[find_preset(name).model])
    plan = make_plan(
        PlanRequest(
            arch=arch,
            hyperparameters=hyperparameters_of(preset_request),
            training=training_of(preset_request),
            examples=10_000,
            mean_tokens=500,
            offers=(OFFER,),
        )
    )

    assert plan.recipe.learning_rate == preset_request.training.learning_rate
    assert _batch(name) in (None, plan.recipe.batch_size)


def _batch(name: str) -> object:
    values = {value.member: value.value for value in find_preset(name).values}
    return values.get("hyperparameters.batch_size")


def test_every_value_of_a_preset_has_a_source_and_its_method_stands_in_its_name() -> None:
    for preset in load_presets().values():
        assert preset.values
        assert all(len(value.source) > 10 for value in preset.values)
        assert preset.adapter in ("", "lora", "qlora")
        assert preset.adapter in preset.name


def asked(
    preset: str | None,
    *settings: str,
    config: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - of any member
) -> dict[str, Any]:
    """Return the job request merged from the preset, config file, options and settings."""
    sets = [parse_setting(text) for text in settings]
    job_config = JobConfig(body=(config or {}) | FILE)
    return merged_request(preset, job_config, MemberOptions(**options), {}, sets)


def test_every_layer_wins_over_those_below_it() -> None:
    body = asked(
        "llama-3.1-8b-qlora",
        "training.learning_rate=0.003",
        config={"training": {"learning_rate": 0.001, "packing": True, "adapter": {"alpha": 5}}},
        learning_rate=0.002,
        lora_rank=32,
        epochs=7,
    )

    assert body["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert body["method"]["supervised"]["hyperparameters"] == {"n_epochs": 7, "batch_size": 32}
    assert body["training"] == {
        "learning_rate": 0.003,
        "packing": True,
        "adapter": {"type": "qlora", "r": 32, "alpha": 5},
    }


def test_a_setting_replaces_a_group_of_the_preset_and_null_lifts_it() -> None:
    merged = asked("llama-3.1-8b-qlora", "training.adapter={type: lora}")
    lifted = asked("llama-3.1-8b-qlora", config={"training": {"adapter": None}})

    assert merged["training"]["adapter"] == {"type": "lora"}
    assert lifted["training"]["adapter"] is None


def test_the_method_is_the_presets_unless_another_one_is_told() -> None:
    preset = "mistral-7b-dpo"

    assert asked(preset)["method"]["type"] == "dpo"
    assert "method" not in asked(None, model="m")
    assert asked(None, "method.type=dpo", "model=m", epochs=2)["method"] == {
        "type": "dpo",
        "dpo": {"hyperparameters": {"n_epochs": 2}},
    }
    with pytest.raises(CliError, match="preset mistral-7b-dpo is for dpo"):
        asked(preset, method="reward")
    with pytest.raises(CliError, match="preset mistral-7b-dpo is for dpo"):
        asked(preset, config={"method": {"type": "reward"}})
    with pytest.raises(CliError, match="preset mistral-7b-dpo is for dpo"):
        asked(preset, "method.type=reward")


def test_epochs_go_where_the_config_has_its_hyperparameters() -> None:
    body = asked(None, config={"model": "m", "hyperparameters": {"batch_size": 2}}, epochs=3)

    assert body["hyperparameters"] == {"batch_size": 2, "n_epochs": 3}
    assert "method" not in body


def test_a_rank_alone_asks_for_adapters() -> None:
    assert asked(None, model="m", lora_rank=4)["training"]["adapter"] == {"type": "lora", "r": 4}


def test_adapters_need_another_learning_rate_than_a_preset_of_all_weights_has() -> None:
    with pytest.raises(CliError, match="another learning rate"):
        asked("qwen3-8b-sft", lora=True)
    with pytest.raises(CliError, match="another learning rate"):
        asked("qwen3-8b-sft", config={"training": {"adapter": {"type": "lora"}}})


def test_presets_are_listed_for_people_and_programs() -> None:
    listed = CliRunner().invoke(app, ["presets"], env={"COLUMNS": "200"})
    result = CliRunner().invoke(app, ["presets", "qwen3-8b-lora", "--json"])
    unknown = CliRunner().invoke(app, ["presets", "gpt-5"])

    assert all(name in listed.stdout for name in load_presets())
    assert json.loads(result.stdout)["request"] == find_preset("qwen3-8b-lora").body()
    assert unknown.exit_code == 2
    assert "List all presets: rekindle presets" in unknown.stderr
