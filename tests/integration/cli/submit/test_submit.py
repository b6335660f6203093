"""What goes in by `rekindle submit`, and what comes back."""

import shlex

import pytest

from rekindle.local.setup import ROOT
from tests.datasets import PAIRS
from tests.integration.cli.conftest import Shell
from tests.world import MODEL

MODEL_OPTION = ("--model", MODEL)


async def submit(shell: Shell, *more: str) -> str:
    """Submit the usual file a second after whatever was before; return the job's id."""
    shell.world.clock.advance(seconds=1)
    ended = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--json", *more)
    assert ended.code == 0, ended
    return str(ended.json["id"])


async def test_submit_shows_the_plan_then_the_job_and_what_to_type_next(shell: Shell) -> None:
    ended = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--nodes", "2")

    (listed,) = (await shell.run("list", "--json")).json["data"]
    assert ended.code == 0
    assert "2 x Standard_ND96amsr_A100_v4 in eastus (spot, $8.44 per hour each)" in ended.out
    assert "10 s of it to verify the result" in ended.out
    assert ended.out.count("note: This service emulates its machines on this computer") == 1
    assert "why" in ended.out
    assert f"Next: rekindle watch {listed['id']}" in ended.out
    assert "uploaded chats.jsonl" in ended.err


def sets(*settings: str) -> list[str]:
    """Each as an option."""
    return [word for setting in settings for word in ("--set", setting)]


async def test_every_option_of_submit_reaches_the_job(shell: Shell) -> None:
    name = await submit(
        shell,
        *("--epochs", "2", "--batch-size", "4", "--learning-rate", "0.001", "--seed", "11"),
        *("--suffix", "mine", "--metadata", "team=red", "--metadata", "note=a=b"),
        *("--lora-rank", "8", "--max-seq-len", "64", "--nodes", "1"),
        *("--validation", shell.dataset("check.jsonl")),
        *("--budget", "$120", "--deadline", "2099-11-25 18:00"),
        *("--regions", "eastus, westeurope", "--priority", "high"),
    )

    job = await shell.world.job(name)
    recipe, asked = job["plan"]["recipe"], job["infrastructure"]
    assert job["hyperparameters"]["n_epochs"] == 2
    assert job["hyperparameters"]["batch_size"] == 4
    assert (job["seed"], job["user_provided_suffix"]) == (11, "mine")
    assert job["metadata"] == {"team": "red", "note": "a=b"}
    assert (recipe["lora"]["rank"], recipe["max_seq_len"]) == (8, 64)
    assert job["plan"]["nodes"] == 1
    assert job["validation_file"].startswith("file-")
    assert asked["budget"] == {"amount": "120", "on_exhausted": "pause", "currency": "USD"}
    assert asked["regions"] == ["eastus", "westeurope"]
    assert (asked["deadline"] > 4_000_000_000, asked["priority"]) == (True, "high")


async def test_the_command_that_the_console_prints_to_repeat_a_job_makes_it(shell: Shell) -> None:
    command = (ROOT / "web/tests/repeat-command.txt").read_text()  # held by a test beside it
    for file in ("file-train", "file-check"):
        command = command.replace(file, await shell.world.upload())
    program, *arguments = shlex.split(command.replace("\\\n", ""))
    ended = await shell.run(*arguments, "--json")
    assert ended.code == 0, ended.err

    job = await shell.world.job(ended.json["id"])
    recipe, asked = job["plan"]["recipe"], job["infrastructure"]
    assert program == "rekindle"
    assert (job["plan"]["nodes"], job["elastic"]["min_nodes"]) == (2, 1)
    assert (recipe["checkpoint_seconds"], recipe["packing"]) == (90, True)
    assert recipe["lora"] == {"rank": 8, "alpha": 32, "dropout": 0.0}
    assert (asked["deadline"], asked["priority"]) == (4_000_000_000, "high")
    assert asked["budget"]["on_exhausted"] == "cancel"
    assert (asked["regions"], asked["engine"]) == (["eastus", "westeurope"], "scale_set")
    assert asked["max_price"]["amount"] == "9.5"
    assert job["metadata"] == {"team.name": "it's = 'red'"}


async def test_every_member_can_be_set(shell: Shell) -> None:
    name = await submit(
        shell,
        *sets("training.checkpoint_seconds=9", "infrastructure.elastic.min_nodes=1"),
        *sets("training.keep_checkpoints=5", "training.milestone_every_steps=7"),
        *sets("training.ema_decay=0.99", "training.verify=false", "training.learning_rate=1e-5"),
        *sets("training.mix={threshold_tokens: 64, short_share: 0.5}", "metadata.run=7"),
        *sets("infrastructure.budget={amount: 0.1, on_exhausted: cancel}"),
        *sets("infrastructure.budget.amount=120.10", "infrastructure.max_price.amount=3.90"),
        *sets("infrastructure.on_deadline_risk=notify"),
        *("--nodes", "1"),
    )

    job = await shell.world.job(name)
    recipe, asked = job["plan"]["recipe"], job["infrastructure"]
    assert recipe["checkpoint_seconds"] == 9
    assert (recipe["keep_checkpoints"], recipe["milestone_every_steps"]) == (5, 7)
    assert (recipe["ema_decay"], recipe["learning_rate"]) == (0.99, 1e-5)
    assert recipe["mix"] == {"threshold_tokens": 64, "short_share": 0.5}
    assert job["plan"]["verify_seconds"] == 0
    assert job["elastic"] == {"min_nodes": 1, "node_counts": [1]}
    assert job["metadata"] == {"run": "7"}
    assert asked["budget"] == {"amount": "120.10", "on_exhausted": "cancel", "currency": "USD"}
    assert asked["max_price"]["amount"] == "3.90"
    assert asked["on_deadline_risk"] == "notify"


async def test_a_dry_run_is_a_config_that_makes_the_same_job(shell: Shell) -> None:
    file = shell.dataset()
    more = ("--lora", "--epochs", "2", "--validation", shell.dataset("check.jsonl"))
    printed = await shell.run("submit", file, *MODEL_OPTION, *more, "--dry-run")
    again = []
    for config in (shell.folder / "job.json", shell.folder / "job.yaml"):
        config.write_text(printed.out)
        again.append(await shell.run("submit", "--config", str(config), "--json"))
    other = await shell.run("submit", file, "-c", str(config), "--epochs", "3", "--json")

    jobs = [ended.json for ended in (*again, other)]
    assert [job["hyperparameters"]["n_epochs"] for job in jobs] == [2, 2, 3]
    assert all(job["plan"]["recipe"]["lora"]["rank"] == 16 for job in jobs)
    assert all(job["validation_file"].startswith("file-") for job in jobs)
    assert jobs[0]["training_file"] == jobs[1]["training_file"] != jobs[2]["training_file"]


async def test_a_config_names_files_beside_it(shell: Shell) -> None:
    folder = shell.folder / "jobs"
    folder.mkdir()
    shell.dataset("jobs/rows.jsonl")
    config = folder / "job.toml"
    config.write_text(f'model = "{MODEL}"\ntraining_file = "rows.jsonl"\nseed = 5\n')

    made = await shell.run("submit", "--config", str(config), "--json")
    config.write_text(config.read_text().replace("rows", "gone"))
    gone = await shell.run("submit", "--config", str(config))

    assert made.json["seed"] == 5
    assert gone.code == 2
    assert "gone.jsonl does not exist" in gone.err


@pytest.mark.parametrize(
    ("method", "settings", "found"),
    [
        ("dpo", ["hyperparameters.beta=0.2", "label_smoothing=0.1"], {"label_smoothing": 0.1}),
        ("dpo", ["loss=ipo"], {"loss": "ipo"}),
        ("reward", ["hyperparameters.n_epochs=2"], {}),
    ],
)
async def test_options_of_a_method_reach_the_job(
    shell: Shell, method: str, settings: list[str], found: dict[str, object]
) -> None:
    pairs = shell.dataset("pairs.jsonl", PAIRS)
    options = sets(*(f"method.{method}.{setting}" for setting in settings))

    made = await shell.run(
        "submit", pairs, *MODEL_OPTION, "--method", method, "--epochs", "2", *options, "--json"
    )

    shown = made.json["method"][method]
    assert made.json["hyperparameters"]["n_epochs"] == 2
    assert found.items() <= shown.items()
    assert "preference" in (await shell.run("files", "list")).out


async def test_a_refusal_of_the_service_names_its_member(shell: Shell) -> None:
    refused = await shell.run(
        *("submit", shell.dataset(), *MODEL_OPTION, "--qlora", "--json"),
        *sets("training.train_last_n_layers=1"),
    )

    assert refused.json["error"]["param"] == "training.train_last_n_layers"
    assert "left out with an adapter" in refused.json["error"]["message"]


async def test_submitted_again_under_its_name_it_is_the_same_job(shell: Shell) -> None:
    first = await submit(shell, "--name", "nightly")
    again = await submit(shell, "--name", "nightly")
    other = await submit(shell, "--name", "weekly")

    files = (await shell.run("files", "list", "--json")).json["data"]
    assert first == again != other
    assert len(files) == 1


async def test_an_uploaded_file_can_be_named_by_its_id(shell: Shell) -> None:
    kept = (await shell.run("files", "upload", shell.dataset(), "--json")).json

    ended = await shell.run("submit", kept["id"], *MODEL_OPTION, "--json")

    assert ended.json["training_file"] == kept["id"]


async def test_warnings_of_the_file_are_shown_with_their_lines(shell: Shell) -> None:
    ended = await shell.run("files", "upload", shell.dataset())

    kept = (await shell.run("files", "list", "--json")).json["data"][0]
    shown = (await shell.run("files", "show", kept["id"], "--json")).json
    assert shown["warnings"]
    assert f"chats.jsonl:{shown['warnings'][0]['line']}: " in ended.err


async def test_json_is_one_document_and_nothing_else_even_when_it_fails(shell: Shell) -> None:
    good = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--json")
    bad = await shell.run("submit", "nowhere.jsonl", *MODEL_OPTION, "--json")

    assert good.json["object"] == "fine_tuning.job"
    assert good.err == ""
    assert bad.json["error"]["code"] == "no_such_file"
    assert bad.json["error"]["exit_code"] == bad.code == 2
    assert bad.json["error"]["next"]


async def test_limits_can_be_set_anew(shell: Shell) -> None:
    name = await submit(shell, "--budget", "$120", "--deadline", "2099-11-25 18:00")
    changed = await shell.run("set", name, "--budget", "200", "--deadline", "none")
    news = ("--on-exhausted", "cancel", "--on-deadline-risk", "notify", "--max-price", "3.90")
    again = await shell.run("set", name, "--budget", "210", *news, "--json")

    asked = again.json["infrastructure"]
    assert "$200.00 of $200.00 left, then pause" in changed.out
    assert (asked["budget"]["on_exhausted"], asked["deadline"]) == ("cancel", None)
    assert (asked["max_price"]["amount"], asked["on_deadline_risk"]) == ("3.90", "notify")
