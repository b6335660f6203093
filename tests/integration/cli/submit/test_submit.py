"""What goes in by `rekindle submit`, and what comes back."""

import json
import shlex

from rekindle.local.setup import ROOT
from tests.datasets import GRADER, prompts
from tests.integration.cli.conftest import Shell
from tests.world import MODEL

MODEL_OPTION = ("--model", MODEL)


async def submit(shell: Shell, *options: str) -> str:
    """Submit the usual file a second after whatever was before; return the job's id."""
    shell.world.clock.advance(seconds=1)
    result = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--json", *options)
    assert result.code == 0, result
    return str(result.json["id"])


async def test_submit_shows_the_plan_then_the_job_and_what_to_type_next(shell: Shell) -> None:
    result = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--nodes", "2")

    (job,) = (await shell.run("list", "--json")).json["data"]
    assert result.code == 0
    assert "2 x Standard_ND96amsr_A100_v4 in eastus (spot, $8.44 per hour each)" in result.out
    assert "10 s of it to verify the result" in result.out
    assert result.out.count("note: This service emulates its machines on this computer") == 1
    assert "why" in result.out
    assert f"Next: rekindle watch {job['id']}" in result.out
    assert "uploaded chats.jsonl" in result.err


def sets(*settings: str) -> list[str]:
    """Each as an option."""
    return [argument for setting in settings for argument in ("--set", setting)]


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
    recipe, infrastructure = job["plan"]["recipe"], job["infrastructure"]
    assert job["hyperparameters"]["n_epochs"] == 2
    assert job["hyperparameters"]["batch_size"] == 4
    assert (job["seed"], job["user_provided_suffix"]) == (11, "mine")
    assert job["metadata"] == {"team": "red", "note": "a=b"}
    assert (recipe["lora"]["rank"], recipe["max_seq_len"]) == (8, 64)
    assert job["plan"]["nodes"] == 1
    assert job["validation_file"].startswith("file-")
    assert infrastructure["budget"] == {"amount": "120", "on_exhausted": "pause", "currency": "USD"}
    assert infrastructure["regions"] == ["eastus", "westeurope"]
    assert (infrastructure["deadline"] > 4_000_000_000, infrastructure["priority"]) == (
        True,
        "high",
    )


async def test_the_command_that_the_console_prints_to_repeat_a_job_makes_it(shell: Shell) -> None:
    command = (ROOT / "web/tests/repeat-command.txt").read_text()  # held by a test beside it
    for file in ("file-train", "file-check"):
        command = command.replace(file, await shell.world.upload())
    program, *arguments = shlex.split(command.replace("\\\n", ""))
    result = await shell.run(*arguments, "--json")
    assert result.code == 0, result.err

    job = await shell.world.job(result.json["id"])
    recipe, infrastructure = job["plan"]["recipe"], job["infrastructure"]
    assert program == "rekindle"
    assert (job["plan"]["nodes"], job["elastic"]["min_nodes"]) == (2, 1)
    assert (recipe["checkpoint_seconds"], recipe["packing"]) == (90, True)
    assert recipe["lora"] == {"rank": 8, "alpha": 32, "dropout": 0.0}
    assert (infrastructure["deadline"], infrastructure["priority"]) == (4_000_000_000, "high")
    assert infrastructure["budget"]["on_exhausted"] == "cancel"
    assert (infrastructure["regions"], infrastructure["engine"]) == (
        ["eastus", "westeurope"],
        "scale_set",
    )
    assert infrastructure["max_price"]["amount"] == "9.5"
    assert job["metadata"] == {"team.name": "it's = 'red'"}


async def test_a_dry_run_is_a_config_that_makes_the_same_job(shell: Shell) -> None:
    file = shell.dataset()
    options = ("--lora", "--epochs", "2", "--validation", shell.dataset("check.jsonl"))
    printed = await shell.run("submit", file, *MODEL_OPTION, *options, "--dry-run")
    from_configs = []
    for config in (shell.folder / "job.json", shell.folder / "job.yaml"):
        config.write_text(printed.out)
        from_configs.append(await shell.run("submit", "--config", str(config), "--json"))
    changed = await shell.run("submit", file, "-c", str(config), "--epochs", "3", "--json")

    jobs = [result.json for result in (*from_configs, changed)]
    assert [job["hyperparameters"]["n_epochs"] for job in jobs] == [2, 2, 3]
    assert all(job["plan"]["recipe"]["lora"]["rank"] == 16 for job in jobs)
    assert all(job["validation_file"].startswith("file-") for job in jobs)
    assert jobs[0]["training_file"] == jobs[1]["training_file"] != jobs[2]["training_file"]


async def test_submitted_again_under_its_name_it_is_the_same_job(shell: Shell) -> None:
    first = await submit(shell, "--name", "nightly")
    second = await submit(shell, "--name", "nightly")
    weekly = await submit(shell, "--name", "weekly")

    files = (await shell.run("files", "list", "--json")).json["data"]
    assert first == second != weekly
    assert len(files) == 1


async def test_warnings_of_the_file_are_shown_with_their_lines(shell: Shell) -> None:
    result = await shell.run("files", "upload", shell.dataset())

    file = (await shell.run("files", "list", "--json")).json["data"][0]
    file_object = (await shell.run("files", "show", file["id"], "--json")).json
    assert file_object["warnings"]
    assert f"chats.jsonl:{file_object['warnings'][0]['line']}: " in result.err


async def test_json_is_one_document_and_nothing_else_even_when_it_fails(shell: Shell) -> None:
    arguments = ("submit", shell.dataset(), *MODEL_OPTION, "--json")
    valid = await shell.run(*arguments)
    missing_file = await shell.run("submit", "nowhere.jsonl", *MODEL_OPTION, "--json")
    refusal = await shell.run(*arguments, "--qlora", *sets("training.train_last_n_layers=1"))

    assert valid.json["object"] == "fine_tuning.job"
    assert valid.err == ""
    assert missing_file.json["error"]["code"] == "no_such_file"
    assert missing_file.json["error"]["exit_code"] == missing_file.code == 2
    assert missing_file.json["error"]["next"]
    assert refusal.json["error"]["param"] == "training.train_last_n_layers"


async def test_limits_can_be_set_anew(shell: Shell) -> None:
    name = await submit(shell, "--budget", "$120", "--deadline", "2099-11-25 18:00")
    result = await shell.run("set", name, "--budget", "200", "--deadline", "none")
    options = ("--on-exhausted", "cancel", "--on-deadline-risk", "notify", "--max-price", "3.90")
    second = await shell.run("set", name, "--budget", "210", *options, "--json")

    infrastructure = second.json["infrastructure"]
    assert "$200.00 of $200.00 left, then pause" in result.out
    assert (infrastructure["budget"]["on_exhausted"], infrastructure["deadline"]) == (
        "cancel",
        None,
    )
    assert (infrastructure["max_price"]["amount"], infrastructure["on_deadline_risk"]) == (
        "3.90",
        "notify",
    )


async def test_a_plan_shows_time_cost_memory_and_how_to_submit_it(shell: Shell) -> None:
    result = await shell.run("plan", shell.dataset(), "--model", MODEL, "--nodes", "2")

    assert result.code == 0, result
    assert "2 x Standard_ND96amsr_A100_v4 in eastus (spot)" in result.out
    assert "GiB per GPU: " in result.out
    assert "--set plan=plan-" in result.out
    assert (await shell.run("list", "--json")).json["data"] == []


async def test_submit_takes_a_plan_and_uploads_the_file_no_second_time(shell: Shell) -> None:
    arguments = (shell.dataset(), "--model", MODEL, "--json")
    plan = (await shell.run("plan", *arguments)).json
    job = (await shell.run("submit", *arguments, "--set", f"plan={plan['id']}")).json
    files = (await shell.run("files", "list", "--json")).json["data"]

    assert job["plan"]["cost_p50"] == plan["chosen"]["cost_p50"]
    assert [file["id"] for file in files] == [job["training_file"]]


async def test_a_dry_run_shows_request_and_plan_and_makes_no_job(shell: Shell) -> None:
    arguments = ("submit", shell.dataset(), *MODEL_OPTION, "--max-seq-len", "64", "--dry-run")
    for_a_program = (await shell.run(*arguments, "--preset", "mistral-7b-sft", "--json")).json
    for_a_person = await shell.run(*arguments)

    request = for_a_program["request"]
    assert request["method"]["supervised"]["hyperparameters"] == {"batch_size": 128, "n_epochs": 1}
    assert request["training"] == {"learning_rate": 2e-5, "max_seq_len": 64}
    assert for_a_program["plan"]["recipe"]["learning_rate"] == 2e-5
    assert '"max_seq_len": 64' in for_a_person.out
    assert "machines" in for_a_person.out
    assert for_a_person.out.count("note: This service emulates its machines") == 1
    assert (await shell.run("list", "--json")).json["data"] == []


async def test_a_grader_reaches_the_job_with_the_options_of_its_method(shell: Shell) -> None:
    rows, path = shell.dataset("prompts.jsonl", prompts()), shell.folder / "grader.json"
    path.write_text(json.dumps(GRADER))
    submitted = await shell.run(
        *("submit", rows, *MODEL_OPTION, "--method", "reinforcement", "--grader", str(path)),
        *("--epochs", "2", *sets("method.reinforcement.answers=4"), "--json"),
    )

    reinforcement = submitted.json["method"]["reinforcement"]
    assert (reinforcement["grader"], reinforcement["algorithm"], reinforcement["answers"]) == (
        GRADER,
        "grpo",
        4,
    )
    assert reinforcement["hyperparameters"]["n_epochs"] == 2
