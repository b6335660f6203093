"""Learning from grades by the command line: the grader is looked at before anything is sent."""

import json

from tests.datasets import GRADER, prompts
from tests.integration.cli.conftest import Ended, Shell
from tests.world import MODEL


def grader(shell: Shell, text: str = json.dumps(GRADER)) -> str:
    path = shell.folder / "grader.json"
    path.write_text(text)
    return str(path)


async def submit(shell: Shell, *more: str) -> Ended:
    rows = shell.dataset("prompts.jsonl", prompts())
    return await shell.run("submit", rows, "--model", MODEL, "--json", *more)


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


async def test_a_grader_of_a_config_reaches_the_job(shell: Shell) -> None:
    learnt = {"grader": GRADER, "answers": 4}
    config = shell.folder / "job.json"
    body = {"method": {"type": "reinforcement", "reinforcement": learnt}}
    config.write_text(json.dumps(body))
    good = await submit(shell, "--config", str(config))

    assert good.json["method"]["reinforcement"]["answers"] == 4
