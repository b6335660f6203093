"""`rekindle submit` with a preset, and without sending anything but the file."""

from tests.integration.cli.conftest import Shell
from tests.world import MODEL

SMALL = ("--model", MODEL, "--max-seq-len", "64")


async def test_a_preset_is_a_job_and_what_is_told_beside_it_wins(shell: Shell) -> None:
    ended = await shell.run(
        *("submit", shell.dataset(), "--preset", "llama-3.1-8b-lora", *SMALL, "--json"),
        *("--batch-size", "8", "--set", "training.adapter.alpha=64"),
    )

    job = await shell.world.job(ended.json["id"])
    recipe = job["plan"]["recipe"]
    assert job["model"] == MODEL
    assert job["hyperparameters"]["n_epochs"] == 1
    assert job["hyperparameters"]["batch_size"] == 8
    assert recipe["learning_rate"] == 3e-4
    assert (recipe["lora"]["rank"], recipe["lora"]["alpha"]) == (8, 64)


async def test_a_dry_run_shows_request_and_plan_and_makes_no_job(shell: Shell) -> None:
    for_a_program = await shell.run(
        "submit", shell.dataset(), "--preset", "mistral-7b-sft", *SMALL, "--dry-run", "--json"
    )
    for_a_person = await shell.run("submit", shell.dataset(), *SMALL, "--dry-run")

    asked = for_a_program.json["request"]
    assert asked["method"]["supervised"]["hyperparameters"] == {"batch_size": 128, "n_epochs": 1}
    assert asked["training"] == {"learning_rate": 2e-5, "max_seq_len": 64}
    assert for_a_program.json["plan"]["recipe"]["learning_rate"] == 2e-5
    assert '"max_seq_len": 64' in for_a_person.out
    assert "machines" in for_a_person.out
    assert for_a_person.out.count("note: This service emulates its machines") == 1
    assert (await shell.run("list", "--json")).json["data"] == []
