"""--set, --config and their YAML: what they make of a request, and what they refuse."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from contract.methods import METHODS
from rekindle.cli.errors import CliError
from rekindle.cli.main import app
from rekindle.cli.submit import job_settings
from rekindle.cli.submit.document_file import (
    MAX_BYTES,
    UnreadableDocument,
    parse_document,
    read_document,
)
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
    applied = apply_settings(sets, body or BODY)
    check_body(applied, JobConfig(), sets)
    return applied


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
    member: Any = made(setting)

    for name in setting.partition("=")[0].strip().split("."):
        member = member[name]
    assert member == value
    assert type(member) is type(value)


@pytest.mark.parametrize(
    ("settings", "code", "param", "expected"),
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
    settings: list[str], code: str, param: str, expected: str
) -> None:
    with pytest.raises(CliError) as caught:
        made(*settings)

    assert (caught.value.code, caught.value.param, caught.value.exit_code) == (code, param, 2)
    assert expected in caught.value.advice


def test_later_settings_win_and_replace_their_member_whole() -> None:
    body = BODY | {"training": {"adapter": {"type": "lora", "r": 8}, "packing": True}}

    applied = made("training.adapter={type: qlora}", "seed=1", "seed=2", body=body)

    assert applied["training"] == {"adapter": {"type": "qlora"}, "packing": True}
    assert applied["seed"] == 2
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
    ("arguments", "offered"),
    [
        (["--set", "training.precision=f"], {"training.precision=fp16", "training.precision=fp32"}),
        (["--set", "training.precision", "="], {"bf16", "fp16", "fp32"}),
        (["--set", "training.precision", "=", "f"], {"fp16", "fp32"}),
        (["c.jsonl", "--set", "training.precision", "=", "f"], {"fp16", "fp32"}),
        (["c.jsonl", "--conf"], {"--config"}),
        (["c.jsonl", "--preset", "gpt2"], {"gpt2-sft"}),
    ],
)
def test_bash_completes_after_an_equals_sign(arguments: list[str], offered: set[str]) -> None:
    line = ["rekindle", "submit", *arguments]
    env = {
        "_REKINDLE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }

    result = CliRunner().invoke(app, [], env=env, prog_name="rekindle")

    assert set(result.stdout.split()) == offered


def test_submit_has_26_options_of_its_own() -> None:
    shared = {"--url", "--key", "--project", "--state", "--json"}
    command: Any = typer.main.get_command(app)
    options = [p for p in command.commands["submit"].params if p.param_type_name == "option"]

    assert len([p for p in options if not shared & set(p.opts)]) <= 26


@pytest.mark.parametrize("option", REMOVED)
def test_a_removed_option_says_what_to_use_instead(option: str) -> None:
    result = CliRunner().invoke(
        app, ["submit", "x.jsonl", option, "0.5"], env={"COLUMNS": "200", "NO_COLOR": "1"}
    )
    now = REMOVED[option].replace("V", "0.5")

    assert result.exit_code == 2
    assert f"{option} was replaced by --set {now}" in result.stderr
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
    member = job_settings.find_member("method.type")

    assert member
    assert member.choices == [name for name, _ in complete_method("")] == list(METHODS)


def test_help_and_the_error_of_a_wrong_name_list_the_methods() -> None:
    env = {"COLUMNS": "400", "NO_COLOR": "1"}
    result = CliRunner().invoke(app, ["submit", "--help"], env=env)
    failed = CliRunner().invoke(app, ["submit", "--method", "orp"], env=env)

    for method in METHODS:
        assert method in result.stdout
        assert repr(method) in failed.stderr


SCALARS = {
    "1e-5": 1e-5,
    "1E5": 1e5,
    "-1.5e+3": -1500.0,
    ".5": 0.5,
    "1.": 1.0,
    "010": 10,
    "0x1F": 31,
    "1_000": 1000,
    "on": True,
    "no": False,
    "True": True,
    "~": None,
    "": None,
    "2026-11-25": "2026-11-25",
    "12:30": "12:30",
    "1.2.3": "1.2.3",
    "e5": "e5",
    "'no'": "no",
    "'5'": "5",
    "!!str 5": "5",
    "=": "=",
    "[hpz, qwz]": ["hpz", "qwz"],
    "{a: 1e-3}": {"a": 1e-3},
}
HOSTILE = {
    "a: 1\nb: 2\na: 3": "line 3: 'a' is given twice",
    "a: {b: 1, b: 2}": "line 1: 'b' is given twice",
    "a: &x [1]\nb: *x": "alias",
    "a: &x [*x]": "alias",
    "a: !!python/object:os.system x": "tag",
    "a: !!set {x}": "tag",
    "a: !!int x": "not a number",
    "a: .nan": "a is nan",
    "a: [1, -.inf]": "a.1 is -inf",
    "a: 1e999": "a is inf",
    "a: " + "9" * 5000: "not a number",
    'a: "\\ud800"': "half a character",
    "? [a]\n: 1": "a name must be text",
    "a: [": "not YAML: line 1",
    "a: 1\n\tb: 2": "not YAML: line 2",
    "a\x00": "not YAML",
    "a: 1\n---\nb: 1": "single document",
    "[" * 100_000: "nested deeper",
    "{a: " * 100 + "1" + "}" * 100: "nested deeper",
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_a_scalar_is_what_a_person_means(text: str, value: object) -> None:
    parsed = parse_document(f"a: {text}").value

    assert parsed == {"a": value}
    assert isinstance(parsed, dict)
    assert type(parsed["a"]) is type(value)


@pytest.mark.parametrize(("text", "expected"), HOSTILE.items(), ids=lambda text: text[:20])
def test_hostile_yaml_is_refused_with_its_reason(text: str, expected: str) -> None:
    with pytest.raises(UnreadableDocument, match=expected):
        parse_document(text)


def test_a_bomb_of_aliases_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))]

    with pytest.raises(UnreadableDocument, match="alias"):
        parse_document("\n".join(lines))


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".json", '{"a": 1, "a": 2}', "given twice"),
        (".json", '{"a": NaN}', "a is nan"),
        (".json", "{", "not JSON"),
        (".json", "[" * 100_000, "nested deeper"),
        (".toml", "a = 1\na = 2", "not TOML"),
        (".toml", "a = 2026-11-25", "a is a date"),
        (".toml", "a = nan", "a is nan"),
        (".toml", "a = " + "[" * 100_000, "nested deeper"),
    ],
)
def test_json_and_toml_are_as_strict(suffix: str, text: str, expected: str) -> None:
    with pytest.raises(UnreadableDocument, match=expected):
        parse_document(text, suffix)


def test_lines_of_yaml_are_known_by_their_members() -> None:
    document = parse_document("model: m\ntraining:\n  # why\n  ema_decay: 0.9\n")

    assert document.lines == {"model": 1, "training": 2, "training.ema_decay": 4}


def test_json_is_yaml_and_may_carry_comments_or_tabs_or_a_mark_of_its_order() -> None:
    assert parse_document('{"a": 1}\n# machines  2').value == {"a": 1}
    assert parse_document('{"a": 1}\n# machines  2', ".json").value == {"a": 1}
    assert parse_document('{\n\t"a": 1}', ".json").value == {"a": 1}


def test_a_file_that_cannot_be_text_is_refused(tmp_path: Path) -> None:
    large, binary, marked = (tmp_path / name for name in ("l.yaml", "b.yaml", "m.YAML"))
    large.write_bytes(b"# " + b"x" * MAX_BYTES)
    binary.write_bytes(b"\xff\xfem\x00")
    marked.write_bytes(b"\xef\xbb\xbfa: 1")

    for path, expected in (
        (large, "larger than"),
        (binary, "UTF-8"),
        (tmp_path / "none", "No such"),
    ):
        with pytest.raises(UnreadableDocument, match=expected):
            read_document(path)
    assert read_document(marked).value == {"a": 1}
