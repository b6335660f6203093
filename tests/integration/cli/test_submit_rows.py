"""Rankings, labelled texts and orders of rows by the command line."""

from tests.integration.cli.conftest import Shell
from tests.integration.cli.test_submit import MODEL_OPTION, submit
from tests.integration.test_api_rankings import labelled, rankings


async def test_every_option_of_rankings_and_of_the_order_reaches_the_job(shell: Shell) -> None:
    ranked = shell.dataset("ranked.jsonl", rankings(3))
    learn = ("--method", "reward", "--reward-loss", "ranked_margin", "--margin-end", "0.4")
    order = ("--mix-threshold", "64", "--mix-short-share", "0.5")
    mixed = await shell.run("submit", ranked, *MODEL_OPTION, *learn, *order, "--json")
    eased = await submit(shell, "--curriculum-steps", "9")
    stray = await shell.run(
        *("submit", shell.dataset(), *MODEL_OPTION, "--margin-start", "0.2"),
    )

    job, other = await shell.world.job(mixed.json["id"]), await shell.world.job(eased)
    assert job["method"]["reward"]["loss"] == "ranked_margin"
    assert job["plan"]["recipe"]["ranked"] == {"margin_start": 0.1, "margin_end": 0.4}
    assert job["plan"]["recipe"]["mix"] == {"threshold_tokens": 64, "short_share": 0.5}
    assert other["plan"]["recipe"]["curriculum"] == {"until_step": 9, "start_share": 0.2}
    assert stray.code == 2
    assert "Add --method reward" in stray.err


async def test_labelled_texts_are_submitted_for_classification(shell: Shell) -> None:
    texts = shell.dataset("texts.jsonl", labelled("good", "bad"))
    learn = ("--method", "classification", "--epochs", "2", "--json")
    ended = await shell.run("submit", texts, *MODEL_OPTION, *learn)
    packed = await shell.run("submit", texts, *MODEL_OPTION, *learn, "--packing")

    assert ended.json["method"]["type"] == "classification"
    assert ended.json["hyperparameters"]["n_epochs"] == 2
    assert (packed.code, packed.json["error"]["code"]) == (2, "wrong_method")
