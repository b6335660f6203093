"""Learning from grades by the command line: the grader is looked at before anything is sent."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Ended, Shell
from tests.integration.test_api_reinforcement import prompts
from tests.unit.test_reinforcement_requests import GRADER
from tests.world import MODEL


def grader(shell: Shell, text: str = json.dumps(GRADER)) -> str:
    path = shell.folder / "grader.json"
    path.write_text(text)
    return str(path)


async def submit(shell: Shell, *more: str) -> Ended:
    rows = shell.dataset("prompts.jsonl", prompts())
    return await shell.run("submit", rows, "--model", MODEL, "--json", *more)


async def nothing_was_sent(shell: Shell) -> bool:
    listed: list[object] = (await shell.run("files", "list", "--json")).json["data"]
    return not listed


async def test_every_option_of_reinforcement_reaches_the_job(shell: Shell) -> None:
    learn = ("--method", "reinforcement", "--grader", grader(shell))
    usual = await submit(shell, *learn)
    told = await submit(
        shell,
        *(*learn, "--epochs", "2"),
        *("--set", "method.reinforcement.algorithm=ppo", "--set", "method.reinforcement.answers=4"),
        *("--set", "method.reinforcement.max_answer_tokens=64"),
        *("--set", "method.reinforcement.beta=0", "--set", "method.reinforcement.temperature=.7"),
    )

    least, most = (ended.json["method"]["reinforcement"] for ended in (usual, told))
    assert (least["grader"], least["algorithm"], least["beta"]) == (GRADER, "grpo", 0.0)
    assert (most["algorithm"], most["answers"], most["max_answer_tokens"]) == ("ppo", 4, 64)
    assert (most["beta"], most["temperature"]) == (0.0, 0.7)
    assert most["hyperparameters"]["n_epochs"] == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "it is not JSON"),
        ("[]", "one JSON object"),
        (json.dumps(GRADER | {"operation": "gt"}), "grader.operation: 'gt' is none of"),
        (json.dumps(GRADER | {"type": "score_model"}), "no network"),
    ],
)
async def test_a_broken_grader_is_named_with_its_file_before_the_upload(
    shell: Shell, text: str, says: str
) -> None:
    path = grader(shell, text)

    ended = await submit(shell, "--method", "reinforcement", "--grader", path)

    error = ended.json["error"]
    assert (ended.code, error["code"]) == (2, "broken_grader")
    assert error["message"].startswith(f"--grader {path}: ")
    assert says in error["message"]
    assert "python -m trainer.graders" in error["next"]
    assert await nothing_was_sent(shell)


async def test_a_grader_that_is_not_there_is_named(shell: Shell) -> None:
    gone = Path(grader(shell)).with_name("gone.json")

    missing = await submit(shell, "--method", "reinforcement", "--grader", str(gone))
    none = await submit(shell, "--method", "reinforcement")

    assert f"--grader {gone}: No such file" in missing.json["error"]["message"]
    assert (none.code, none.json["error"]["code"]) == (2, "no_grader")
    assert await nothing_was_sent(shell)


async def test_a_grader_of_a_config_is_looked_at_too(shell: Shell) -> None:
    learnt = {"grader": GRADER, "answers": 4}
    config = shell.folder / "job.json"
    body = {"method": {"type": "reinforcement", "reinforcement": learnt}}
    config.write_text(json.dumps(body))
    good = await submit(shell, "--config", str(config))
    learnt["grader"] = GRADER | {"operation": "gt"}
    config.write_text(json.dumps(body))

    bad = await submit(shell, "--config", str(config), "--name", "again")

    assert good.json["method"]["reinforcement"]["answers"] == 4
    assert bad.json["error"]["code"] == "broken_grader"
    assert bad.json["error"]["message"].startswith("method.reinforcement.grader: ")


async def test_a_grader_is_refused_beside_other_methods_before_the_upload(shell: Shell) -> None:
    stray = await submit(shell, "--grader", grader(shell))
    other = await submit(shell, "--method", "reinforcement", "--set", "method.dpo.loss=ipo")

    assert [e.json["error"]["code"] for e in (stray, other)] == ["wrong_method"] * 2
    assert "--method reinforcement" in stray.json["error"]["next"]
    assert await nothing_was_sent(shell)
