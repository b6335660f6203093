"""What goes in by the command line, what comes back, and how a command ends."""

import asyncio
import json

import pytest

from tests import waiting
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
        *("--validation", shell.dataset("check.jsonl")),
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
    assert job["plan"]["nodes"] == 1
    assert job["elastic"] == {"min_nodes": 1, "node_counts": [1]}
    assert job["validation_file"].startswith("file-")


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


async def test_lists_page_and_filter_by_status(shell: Shell) -> None:
    names = [await submit(shell, "--name", str(n)) for n in range(3)]
    await shell.run("cancel", names[0])
    await shell.world.tick(2)

    newest = (await shell.run("list", "-n", "2", "--json")).json
    rest = (await shell.run("list", "--after", names[1], "--json")).json
    ended = (await shell.run("list", "--status", "cancelled", "--json")).json
    unknown = await shell.run("list", "--status", "happy")
    shown = await shell.run("list", "-n", "2")

    assert [j["id"] for j in newest["data"]] == [names[2], names[1]]
    assert (newest["has_more"], rest["has_more"]) == (True, False)
    assert [j["id"] for j in rest["data"]] == [names[0]]
    assert [j["id"] for j in ended["data"]] == [names[0]]
    assert unknown.code == 2
    assert f"rekindle list --after {names[1]}" in shown.out


async def test_a_job_is_named_by_its_id_the_beginning_of_it_or_last(shell: Shell) -> None:
    first, second = await submit(shell, "--name", "a"), await submit(shell, "--name", "b")
    common = first[: next(n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]

    whole = await shell.run("show", first, "--json")
    last = await shell.run("show", "last", "--json")
    beginning = await shell.run("show", second[: len(common) + 1], "--json")
    bare = await shell.run("show", first.removeprefix("ftjob-")[:-1], "--json")
    both = await shell.run("show", common)
    nobody = await shell.run("show", "ftjob-zzz")

    assert [e.json["id"] for e in (whole, last, beginning, bare)] == [first, second, second, first]
    assert both.code == 2
    assert first in both.err
    assert second in both.err
    assert nobody.code == 5


async def test_last_of_no_jobs_says_how_to_make_one(shell: Shell) -> None:
    ended = await shell.run("show", "last")

    assert ended.code == 5
    assert "rekindle submit" in ended.err


async def test_a_wish_is_granted_once_and_refused_where_it_makes_no_sense(shell: Shell) -> None:
    name = await submit(shell)

    first = await shell.run("cancel", name)
    await shell.world.tick(2)
    again = await shell.run("cancel", name)
    paused = await shell.run("pause", name)
    shown = await shell.run("show", name)

    assert (first.code, again.code, paused.code) == (0, 0, 1)
    assert name in first.out
    assert f"{name} is over: cancelled." in again.out
    assert "cancelled" in paused.err
    assert "Cancelled" in shown.out


async def test_the_exit_code_says_what_kind_of_failure_it_was(shell: Shell) -> None:
    unknown = await shell.run("show", "ftjob-" + "0" * 26)
    wrong = await shell.run("list", "--key", "rk-wrong")
    keyless = await shell.run("list", REKINDLE_API_KEY="")
    typed = await shell.run("list", "--nonsense")
    address = await shell.run("list", "--url", "127.0.0.1:9")

    assert [e.code for e in (unknown, wrong, keyless, typed, address)] == [5, 4, 4, 2, 2]
    assert all(e.err and "Traceback" not in e.err for e in (unknown, wrong, keyless, address))


async def test_a_service_that_is_away_is_tried_again_and_then_said_to_be_away(shell: Shell) -> None:
    shell.switch.is_away = True

    ended = await shell.run("list")

    assert ended.code == 3
    assert shell.switch.refused == 5


async def test_a_key_is_shown_once_and_worthless_once_revoked(shell: Shell) -> None:
    made = (await shell.run("keys", "create", "ci", "--json")).json
    with_it = await shell.run("list", "--key", made["key"])
    listed = await shell.run("keys", "list")
    gone = await shell.run("keys", "revoke", made["id"])
    after = await shell.run("list", "--key", made["key"])

    assert with_it.code == gone.code == 0
    assert made["id"] in listed.out
    assert made["key"] not in listed.out
    assert after.code == 4


async def test_events_and_cost_are_there_for_people_and_programs(shell: Shell) -> None:
    name = await submit(shell)

    told = (await shell.run("events", name, "--json")).json["data"]
    read = await shell.run("events", name)
    bill = (await shell.run("cost", name, "--json")).json
    shown = await shell.run("cost", name)

    assert told[0]["code"] == "job.created"
    assert told[0]["message"] in read.out
    assert bill["object"] == "fine_tuning.job.cost"
    assert "forecast" in shown.out


@pytest.mark.parametrize("command", ["submit", "watch", "break", "keys", "doctor"])
async def test_help_is_there_without_any_service(shell: Shell, command: str) -> None:
    ended = await shell.run(command, "--help", REKINDLE_URL="")

    assert ended.code == 0
    assert "Usage: " in ended.out


async def test_doctor_knows_the_service_the_key_and_the_clock(shell: Shell) -> None:
    good = (await shell.run("doctor", "--json")).json
    wrong = await shell.run("doctor", "--json", "--key", "rk-wrong")
    shown = await shell.run("doctor", "--key", "rk-wrong")
    shell.switch.is_away = True
    away = (await shell.run("doctor", "--json")).json

    def verdicts(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
        return {c["name"]: c["verdict"] for c in document["checks"] if c["topic"] == "service"}

    assert verdicts(good) == {"service": "ok", "clock": "ok", "API key": "ok"}
    assert verdicts(wrong.json)["API key"] == "missing"
    assert wrong.code == shown.code == 1
    assert "missing" in shown.out
    assert verdicts(away) == {"service": "missing"}


async def test_nothing_but_a_local_stack_is_broken_on_purpose(shell: Shell) -> None:
    job = await submit(shell)

    evict = await shell.run("evict", job)
    broken = await shell.run("break", "service")
    listed = await shell.run("break", "--json")
    unknown = await shell.run("break", "everything")

    assert (evict.code, broken.code, unknown.code) == (3, 3, 2)
    assert "rekindle up" in evict.err
    assert {"service", "vm", "capacity"} <= {b["what"] for b in listed.json["data"]}
    assert "There is: service" in unknown.err


async def test_an_upload_that_the_service_could_not_take_is_sent_again(shell: Shell) -> None:
    shell.switch.is_away = True

    sending = asyncio.create_task(shell.run("files", "upload", shell.dataset()))
    await waiting.until(lambda: _value(shell.switch.refused), lambda n: n >= 1)
    shell.switch.is_away = False
    ended = await sending

    assert ended.code == 0
    assert "Sending it again." in ended.err
    assert len((await shell.run("files", "list", "--json")).json["data"]) == 1


async def _value(seen: int) -> int:
    return seen
