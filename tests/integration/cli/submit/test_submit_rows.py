"""Rankings, labelled texts and orders of rows by the command line."""

from tests.datasets import labelled, rankings
from tests.integration.cli.conftest import Shell
from tests.integration.cli.submit.test_submit import MODEL_OPTION, sets, submit


async def test_options_of_rankings_and_of_the_order_reach_the_job(shell: Shell) -> None:
    ranked = shell.dataset("ranked.jsonl", rankings(3))
    learn = ("--method", "reward", *sets("method.reward.loss=ranked_margin"))
    margin = sets("method.reward.margin_end=0.4")
    mixed = await shell.run("submit", ranked, *MODEL_OPTION, *learn, *margin, "--json")
    eased = await submit(shell, *sets("training.curriculum.until_step=9"))

    job, other = await shell.world.job(mixed.json["id"]), await shell.world.job(eased)
    assert job["method"]["reward"]["loss"] == "ranked_margin"
    assert job["plan"]["recipe"]["ranked"] == {"margin_start": 0.1, "margin_end": 0.4}
    assert other["plan"]["recipe"]["curriculum"] == {"until_step": 9, "start_share": 0.2}


async def test_labelled_texts_are_submitted_for_classification(shell: Shell) -> None:
    texts = shell.dataset("texts.jsonl", labelled("good", "bad"))
    ended = await shell.run(
        "submit", texts, *MODEL_OPTION, "--method", "classification", "--epochs", "2", "--json"
    )

    assert ended.json["method"]["type"] == "classification"
    assert ended.json["hyperparameters"]["n_epochs"] == 2
