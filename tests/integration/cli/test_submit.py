"""What goes in by `rekindle submit`, and what comes back."""

import json

import pytest

from tests.integration.cli.conftest import Shell
from tests.integration.test_api_preferences import PAIRS
from tests.world import MODEL, ROW

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
    assert "2 x Standard_ND96amsr_A100_v4 in eastus (spot, $8.44 an hour each)" in ended.out
    assert "10 s of it to verify the result" in ended.out
    assert ended.out.count("note: This service emulates its machines on this computer") == 1
    assert "why" in ended.out
    assert f"Next: rekindle watch {listed['id']}" in ended.out
    assert "uploaded chats.jsonl" in ended.err


async def test_every_option_of_submit_reaches_the_job(shell: Shell) -> None:
    name = await submit(
        shell,
        *("--epochs", "2", "--batch-size", "4", "--learning-rate", "0.001", "--seed", "11"),
        *("--suffix", "mine", "--metadata", "team=red", "--metadata", "note=a=b"),
        *("--lora-rank", "8", "--max-seq-len", "64", "--checkpoint-seconds", "9", "--nodes", "1"),
        *("--min-nodes", "1", "--keep-checkpoints", "5", "--milestone-every", "7"),
        *("--validation", shell.dataset("check.jsonl"), "--ema-decay", "0.99", "--no-verify"),
    )

    job = await shell.world.job(name)
    recipe = job["plan"]["recipe"]
    assert job["hyperparameters"]["n_epochs"] == 2
    assert job["hyperparameters"]["batch_size"] == 4
    assert (job["seed"], job["user_provided_suffix"]) == (11, "mine")
    assert job["metadata"] == {"team": "red", "note": "a=b"}
    assert (recipe["lora"]["rank"], recipe["max_seq_len"]) == (8, 64)
    assert recipe["checkpoint_seconds"] == 9
    assert (recipe["keep_checkpoints"], recipe["milestone_every_steps"]) == (5, 7)
    assert recipe["ema_decay"] == 0.99
    assert job["plan"]["verify_seconds"] == 0
    assert job["plan"]["nodes"] == 1
    assert job["elastic"] == {"min_nodes": 1, "node_counts": [1]}
    assert job["validation_file"].startswith("file-")


async def test_how_steps_are_computed_reaches_the_job(shell: Shell) -> None:
    fast = await submit(
        shell,
        *("--precision", "fp16", "--on-spike", "stop", "--compile", "--fused-kernels"),
        *("--scale-learning-rate", "linear", "--base-batch", "4"),
    )
    refused = await shell.run(
        *("submit", shell.dataset(), *MODEL_OPTION, "--zero-plus-plus", "hpz"),
    )
    alone = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--base-batch", "4")

    recipe = (await shell.world.job(fast))["plan"]["recipe"]
    assert recipe["precision"] == "fp16"
    assert recipe["extras"] == {
        "on_spike": "stop",
        "compiled": True,
        "fused_kernels": True,
        "zero_plus_plus": "",
        "rollout_offload": False,
        "scaling": "linear",
        "base_batch": 4,
    }
    assert "needs GPUs, and this service trains on CPUs" in refused.err
    assert alone.code != 0
    assert "go together" in alone.err


async def test_what_saves_memory_reaches_the_job(shell: Shell) -> None:
    quantized = await submit(shell, "--qlora", "--loss-chunk", "512")
    frozen = await submit(shell, "--train-last-layers", "1", "--freeze-embeddings")
    offloaded = await submit(shell, "--offload-optimizer")
    both = await shell.run(
        *("submit", shell.dataset(), *MODEL_OPTION, "--qlora", "--train-last-layers", "1")
    )

    recipes = [(await shell.world.job(n))["plan"]["recipe"] for n in (quantized, frozen, offloaded)]
    assert recipes[0]["lora"]["quantized"] is True
    assert recipes[0]["savings"]["loss_chunk"] == 512
    assert recipes[1]["savings"]["train_last_n_layers"] == 1
    assert recipes[1]["savings"]["train_embeddings"] is False
    assert recipes[2]["savings"]["offload"] == "optimizer"
    assert both.code != 0
    assert "left out with an adapter" in both.err


async def test_every_option_of_dpo_reaches_the_job(shell: Shell) -> None:
    pairs = shell.dataset("pairs.jsonl", PAIRS)
    dpo = ("submit", pairs, *MODEL_OPTION, "--json", "--method", "dpo")

    smooth = await shell.run(*dpo, "--beta", "0.2", "--label-smoothing", "0.1", "--epochs", "2")
    ipo = await shell.run(*dpo, "--dpo-loss", "ipo")
    listed = await shell.run("files", "list")
    shown = await shell.run("files", "show", ipo.json["training_file"])

    assert smooth.json["method"]["dpo"]["hyperparameters"]["beta"] == 0.2
    assert smooth.json["method"]["dpo"]["label_smoothing"] == 0.1
    assert smooth.json["hyperparameters"]["n_epochs"] == 2
    assert ipo.json["method"]["dpo"]["loss"] == "ipo"
    assert "preference" in listed.out
    assert "preference" in shown.out


async def test_a_reward_model_is_asked_for_by_its_method(shell: Shell) -> None:
    pairs = shell.dataset("pairs.jsonl", PAIRS)
    reward = ("submit", pairs, *MODEL_OPTION, "--method", "reward")

    made = await shell.run(*reward, "--json", "--epochs", "2", "--lora")
    usual = await shell.run(*reward, "--json")
    beta = await shell.run(*reward, "--beta", "0.2")

    assert made.json["method"]["reward"]["hyperparameters"]["n_epochs"] == 2
    assert made.json["plan"]["recipe"]["lora"]["rank"] == 16
    assert usual.json["method"]["type"] == "reward"
    assert beta.code == 2
    assert "--beta is an option of DPO" in beta.err


async def test_packing_is_asked_for_and_refused_for_reward_models(shell: Shell) -> None:
    packed = await submit(shell, "--packing")
    plain = await submit(shell)
    before = (await shell.run("files", "list", "--json")).json["data"]

    refused = await shell.run(
        *("submit", shell.dataset("pairs.jsonl", PAIRS), *MODEL_OPTION),
        *("--method", "reward", "--packing"),
    )
    after = (await shell.run("files", "list", "--json")).json["data"]

    assert (await shell.world.job(packed))["plan"]["recipe"]["packing"] is True
    assert "packing" not in (await shell.world.job(plain))["plan"]["recipe"]
    assert refused.code == 2
    assert "Leave --packing out." in refused.err
    assert before == after, "nothing was sent"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--beta", value) for value in ("0", "-1", "2.1", "nan")),
        *(("--label-smoothing", value) for value in ("-0.1", "0.5", "nan")),
        *(("--ema-decay", value) for value in ("-0.1", "1", "nan")),
    ],
)
async def test_a_number_out_of_its_range_is_refused_before_the_upload(
    shell: Shell, option: str, value: str
) -> None:
    pairs = shell.dataset("pairs.jsonl", PAIRS)

    wrong = await shell.run("submit", pairs, *MODEL_OPTION, "--method", "dpo", option, value)
    listed = (await shell.run("files", "list", "--json")).json["data"]

    assert (wrong.code, listed) == (2, [])
    assert option in wrong.err


async def test_options_of_dpo_want_the_method_and_a_file_of_preferences(shell: Shell) -> None:
    chats = shell.dataset()

    alone = await shell.run("submit", chats, *MODEL_OPTION, "--beta", "0.2", "--dpo-loss", "ipo")
    listed = (await shell.run("files", "list", "--json")).json["data"]
    wrong = await shell.run("submit", chats, *MODEL_OPTION, "--method", "dpo")

    assert (alone.code, wrong.code) == (2, 2)
    assert "Add --method dpo, or leave --beta and --dpo-loss out." in alone.err
    assert listed == [], "nothing was sent"
    assert "holds chats" in wrong.err


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


async def test_a_file_that_cannot_be_is_refused_before_anything_is_sent(shell: Shell) -> None:
    absent = await shell.run("submit", "nowhere.jsonl", *MODEL_OPTION)
    empty = await shell.run("submit", shell.dataset("none.jsonl", b""), *MODEL_OPTION)
    pair = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--metadata", "red")

    assert [e.code for e in (absent, empty, pair)] == [2, 2, 2]
    assert "nowhere.jsonl does not exist" in absent.err
    assert "is empty" in empty.err
    assert "KEY=VALUE" in pair.err


async def test_a_bad_line_is_named_by_its_number(shell: Shell) -> None:
    rows = [json.dumps(ROW)] * 12
    rows[4] = '{"messages": []}'

    ended = await shell.run("submit", shell.dataset(data="\n".join(rows).encode()), *MODEL_OPTION)

    assert ended.code == 2
    assert "line 5" in ended.err.lower()


async def test_warnings_of_the_file_are_shown_with_their_lines(shell: Shell) -> None:
    ended = await shell.run("files", "upload", shell.dataset())

    kept = (await shell.run("files", "list", "--json")).json["data"][0]
    shown = (await shell.run("files", "show", kept["id"], "--json")).json
    assert shown["warnings"]
    assert f"chats.jsonl:{shown['warnings'][0]['line']}: " in ended.err


async def test_an_unknown_model_is_said_to_be_one(shell: Shell) -> None:
    ended = await shell.run("submit", shell.dataset(), "--model", "nobody/knows-it")

    assert ended.code in (2, 5)
    assert "nobody/knows-it" in ended.err


async def test_json_is_one_document_and_nothing_else_even_when_it_fails(shell: Shell) -> None:
    good = await shell.run("submit", shell.dataset(), *MODEL_OPTION, "--json")
    bad = await shell.run("submit", "nowhere.jsonl", *MODEL_OPTION, "--json")

    assert good.json["object"] == "fine_tuning.job"
    assert good.err == ""
    assert bad.json["error"]["code"] == "no_such_file"
    assert bad.json["error"]["exit_code"] == bad.code == 2
    assert bad.json["error"]["next"]


async def test_limits_of_money_time_and_place_reach_the_job_and_can_be_set_anew(
    shell: Shell,
) -> None:
    name = await submit(
        shell,
        *("--budget", "$120", "--on-exhausted", "cancel", "--deadline", "2099-11-25 18:00"),
        *("--max-price", "3.90", "--regions", "eastus, westeurope"),
        *("--on-deadline-risk", "notify"),
    )
    asked = (await shell.world.job(name))["infrastructure"]
    changed = await shell.run("set", name, "--budget", "200", "--deadline", "none")
    later = (await shell.world.job(name))["infrastructure"]

    assert asked["budget"] == {"amount": "120", "on_exhausted": "cancel", "currency": "USD"}
    assert asked["max_price"]["amount"] == "3.90"
    assert asked["regions"] == ["eastus", "westeurope"]
    assert asked["on_deadline_risk"] == "notify"
    assert asked["deadline"] > 4_000_000_000
    assert "$200.00 of $200.00 left, then pause" in changed.out
    assert (later["budget"]["amount"], later["deadline"]) == ("200", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "a lot"), "no amount of dollars"),
        (("--deadline", "soon"), "no time"),
        (("--on-exhausted", "cancel"), "nothing without --budget"),
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused_before_anything_is_sent(
    shell: Shell, options: tuple[str, ...], message: str
) -> None:
    ended = await shell.run("set", "last", *options)

    assert ended.code == 2
    assert message in ended.err
