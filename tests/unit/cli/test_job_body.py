"""--set and --config: what they make of a request, and what they refuse before any upload."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from contract.methods import METHODS
from rekindle.cli.errors import CliError
from rekindle.cli.main import app
from rekindle.cli.submit import job_settings
from rekindle.cli.submit.job_config import (
    JobConfig,
    apply_settings,
    check_body,
    merge_bodies,
    parse_setting,
    read_config,
)
from rekindle.cli.submit.options import complete_method
from rekindle.cli.submit.removed_options import REMOVED

UNKNOWN, INVALID = "unknown_parameter", "invalid_value"
BODY: dict[str, Any] = {"model": "m", "training_file": "file-1"}


def made(*settings: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Apply the settings to the request, check it and return it."""
    sets = [parse_setting(text) for text in settings]
    found = apply_settings(sets, body or BODY)
    check_body(found, JobConfig(), sets)
    return found


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("training.ema_decay=0.99", 0.99),
        ("training.learning_rate=1e-5", 1e-5),
        ("training.packing=true", True),
        ("training.packing=no", False),
        ("training.zero_plus_plus=[hpz, qwz]", ["hpz", "qwz"]),
        ("training.adapter={type: lora, r: 4}", {"type": "lora", "r": 4}),
        ("validation_file=null", None),
        ("suffix=007", "007"),
        ("suffix=no", "no"),
        ("suffix='no'", "no"),
        ("suffix=2026-11-25", "2026-11-25"),
        ("suffix=a=b", "a=b"),
        ("suffix=[x", "[x"),
        ("metadata.run=5", "5"),
        ("metadata.empty=", ""),
        ("metadata.note=a #b: *c", "a #b: *c"),
        ('metadata.note="a\\tb"', "a\tb"),
        ("infrastructure.budget.amount=0.1", "0.1"),
        ("infrastructure.budget.amount=1234567.100000", "1234567.100000"),
        ("hyperparameters.n_epochs=auto", "auto"),
        ("hyperparameters.learning_rate_multiplier=0.5", 0.5),
        (" training.seed_=1".replace("training.seed_", "seed"), 1),
    ],
)
def test_a_setting_means_what_its_member_holds(setting: str, value: object) -> None:
    found: Any = made(setting)

    for name in setting.partition("=")[0].strip().split("."):
        found = found[name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("settings", "code", "param", "says"),
    [
        (["training.ema_decey=1"], UNKNOWN, "training.ema_decey", "training.ema_decay"),
        (["ema_decay=0.9"], UNKNOWN, "ema_decay", "training.ema_decay"),
        (["training.seed=1"], UNKNOWN, "training.seed", "seed"),
        (["trainig.packing=1"], UNKNOWN, "trainig.packing", "training.packing"),
        (["training.mix={shot_share: 1}"], UNKNOWN, "training.mix.shot_share", "short_share"),
        (["suffix.x=1"], UNKNOWN, "suffix.x", "expected value: Your part"),
        (["training.lora_r=8"], UNKNOWN, "training.lora_r", "training has these members: "),
        (["training.zero_plus_plus.0=hpz"], UNKNOWN, "training.zero_plus_plus.0", "list of"),
        (["nodes=1"], UNKNOWN, "nodes", "infrastructure.nodes"),
        (["training.ema_decay=2"], INVALID, "training.ema_decay", "below 1"),
        (["training.precision=fp8"], INVALID, "training.precision", "bf16"),
        (["training.packing=1"], INVALID, "training.packing", "true or false"),
        (["seed=1.5"], INVALID, "seed", "integer"),
        (["training=1", "training.ema_decay=0"], INVALID, "training", "object"),
        (["training=1"], INVALID, "training", "object"),
        (["training.adapter.r=4"], "missing_required_parameter", "training.adapter.type", "lora"),
        (["method.dpo.loss=ipo"], "wrong_method", "method.dpo", "--method dpo"),
        (["training.ema_decay"], "bad_setting", "", "MEMBER=VALUE"),
        (["=1"], "bad_setting", "", "MEMBER=VALUE"),
        ([""], "bad_setting", "", "MEMBER=VALUE"),
        (["training.ema_decay=.nan"], "bad_setting", "", "below 1"),
        (["training.ema_decay=["], "bad_setting", "", "below 1"),
        (["suffix=\udcff"], "bad_text", "", "UTF-8"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_with_what_is_right(
    settings: list[str], code: str, param: str, says: str
) -> None:
    with pytest.raises(CliError) as caught:
        made(*settings)

    assert (caught.value.code, caught.value.param, caught.value.exit_code) == (code, param, 2)
    assert says in caught.value.advice


def test_later_settings_win_and_replace_their_member_whole() -> None:
    body = BODY | {"training": {"adapter": {"type": "lora", "r": 8}, "packing": True}}

    found = made("training.adapter={type: qlora}", "seed=1", "seed=2", body=body)

    assert found["training"] == {"adapter": {"type": "qlora"}, "packing": True}
    assert found["seed"] == 2
    assert body["training"]["adapter"]["type"] == "lora", "what was given is left as it is"


def test_layers_are_merged_member_by_member_and_null_wins_as_well() -> None:
    below = {"a": {"b": 1, "c": 2}, "d": [1], "e": None}

    assert merge_bodies(below, {"a": {"c": None}, "d": [2], "e": {"f": 1}}) == {
        "a": {"b": 1, "c": None},
        "d": [2],
        "e": {"f": 1},
    }
    with pytest.raises(CliError, match="d is"):
        merge_bodies(below, {"d": {"x": 1}})


def test_a_fault_of_a_config_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("model: m\ntraining:\n  packing: yes\n  ema_decey: 1\n")
    config = read_config(path)

    with pytest.raises(CliError, match=r"job\.yaml:4: training\.ema_decey") as caught:
        check_body(config.body, config, [])

    assert (caught.value.param, caught.value.advice) == (
        "training.ema_decey",
        "Did you mean training.ema_decay?",
    )


@pytest.mark.parametrize(
    "text", ["", "[model]", "model", "# nothing", "null", "5", "{}", "a: [", "\x00"]
)
def test_a_config_that_holds_no_members_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)

    with pytest.raises(CliError, match="--config") as caught:
        read_config(path)

    assert caught.value.code == "bad_config"


def test_files_of_a_config_lie_beside_it_and_a_dry_run_is_one(tmp_path: Path) -> None:
    toml, plan = tmp_path / "job.toml", tmp_path / "plan.json"
    toml.write_text('model = "m"\ntraining_file = "a.jsonl"\nvalidation_file = "file-1"\n')
    plan.write_text('{"object": "plan", "request": {"model": "m"}, "plan": {}}')

    assert read_config(toml).body == {
        "model": "m",
        "training_file": str(tmp_path / "a.jsonl"),
        "validation_file": "file-1",
    }
    assert read_config(plan).body == {"model": "m"}


def test_names_and_values_of_settings_complete_with_help() -> None:
    names = dict(job_settings.complete_setting("training.mi"))
    values = dict(job_settings.complete_setting("training.precision="))

    assert {"training.micro_batch=", "training.mix.short_share="} <= set(names)
    assert all(names.values())
    assert list(values) == [f"training.precision={v}" for v in ("bf16", "fp16", "fp32")]
    assert job_settings.complete_setting("training.precision=f") == [
        (f"training.precision={v}", values["training.precision=fp16"]) for v in ("fp16", "fp32")
    ]
    assert dict(job_settings.complete_setting("training.packing=")).keys() == {
        "training.packing=true",
        "training.packing=false",
    }
    assert job_settings.complete_setting("nothing=") == []


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["--set", "training.precision=f"], {"training.precision=fp16", "training.precision=fp32"}),
        (["--set", "training.precision", "="], {"bf16", "fp16", "fp32"}),
        (["--set", "training.precision", "=", "f"], {"fp16", "fp32"}),
        (["c.jsonl", "--set", "training.precision", "=", "f"], {"fp16", "fp32"}),
        (["c.jsonl", "--conf"], {"--config"}),
        (["c.jsonl", "--preset", "gpt2"], {"gpt2-sft"}),
    ],
)
def test_bash_completes_after_an_equals_sign(words: list[str], offered: set[str]) -> None:
    line = ["rekindle", "submit", *words]
    env = {
        "_REKINDLE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }

    ended = CliRunner().invoke(app, [], env=env, prog_name="rekindle")

    assert set(ended.stdout.split()) == offered


def test_submit_has_26_options_of_its_own() -> None:
    shared = {"--url", "--key", "--project", "--state", "--json"}
    command: Any = typer.main.get_command(app)
    options = [p for p in command.commands["submit"].params if p.param_type_name == "option"]

    assert len([p for p in options if not shared & set(p.opts)]) <= 26


@pytest.mark.parametrize("option", REMOVED)
def test_a_removed_option_says_what_to_use_instead(option: str) -> None:
    ended = CliRunner().invoke(
        app, ["submit", "x.jsonl", option, "0.5"], env={"COLUMNS": "200", "NO_COLOR": "1"}
    )
    now = REMOVED[option].replace("V", "0.5")

    assert ended.exit_code == 2
    assert f"{option} was replaced by --set {now}" in ended.stderr
    for setting in now.split("--set "):
        assert job_settings.find_member(setting.strip(" '").partition("=")[0]), setting


def test_the_value_of_a_removed_option_is_kept_for_a_shell() -> None:
    env = {"COLUMNS": "200", "NO_COLOR": "1"}
    equal = CliRunner().invoke(app, ["submit", "--ema-decay=0.9"], env=env)
    bare = CliRunner().invoke(app, ["submit", "--ema-decay"], env=env)
    typo = CliRunner().invoke(app, ["submit", "--ema-decey", "1"], env=env)
    value = CliRunner().invoke(app, ["submit", "--suffix", "--packing", "--help"], env=env)

    assert "training.ema_decay=0.9." in equal.stderr
    assert "training.ema_decay=VALUE." in bare.stderr
    assert "No such option: --ema-decey" in typo.stderr
    assert value.exit_code == 2


def test_methods_of_the_option_are_those_of_the_request() -> None:
    found = job_settings.find_member("method.type")

    assert found
    assert found.choices == [name for name, _ in complete_method("")] == list(METHODS)


def test_help_and_the_error_of_a_wrong_name_list_the_methods() -> None:
    env = {"COLUMNS": "400", "NO_COLOR": "1"}
    shown = CliRunner().invoke(app, ["submit", "--help"], env=env)
    wrong = CliRunner().invoke(app, ["submit", "--method", "orp"], env=env)

    for method in METHODS:
        assert method in shown.stdout
        assert repr(method) in wrong.stderr
