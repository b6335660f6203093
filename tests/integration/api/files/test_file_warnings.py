"""What is odd about a job's files is told among the job's events, once, with line numbers."""

import json
from typing import Any

from tests.world import JOBS, ROW, World


def jsonl(*rows: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def answer_row(text: str) -> dict[str, Any]:
    return {"messages": [ROW["messages"][0], {"role": "assistant", "content": text}]}


async def warnings_of(world: World, **files: str) -> dict[str, dict[str, Any]]:
    """Events about files of a job that has been prepared, by their code."""
    job = await world.submit(**files)
    await world.tick(3)
    events = (await world.call("GET", f"{JOBS}/{job['id']}/events?limit=100")).json()["data"]
    about = [e for e in events if e["code"].startswith("file.")]
    assert len({e["code"] for e in about}) == len(about), "once"
    assert {e["level"] for e in about} <= {"warn"}
    return {e["code"]: e for e in about}


async def test_each_kind_of_warning_is_one_event_with_its_lines(world: World) -> None:
    rows = [answer_row(f"answer {i}") for i in range(12)]
    file = await world.upload(jsonl(*rows, *rows[:11], {"messages": [*ROW["messages"][1:]]}))

    told = await warnings_of(world, training_file=file)

    assert set(told) == {"file.duplicate_row", "file.missing_user_message"}
    message = told["file.duplicate_row"]["message"]
    assert message.startswith("train.jsonl: 11 lines (13, 14, 15, ")
    assert "22 and more); the first: the row is the same as line 1." in message
    assert told["file.duplicate_row"]["data"]["count"] == 11
    assert [w["line"] for w in told["file.duplicate_row"]["data"]["warnings"]] == [*range(13, 24)]
    assert "line 24: no message is the user's." in told["file.missing_user_message"]["message"]


async def test_long_rows_are_held_against_the_jobs_own_context(world: World) -> None:
    """The tiny model takes 512 tokens; the file was fine for the usual 2048."""
    rows = [answer_row(f"answer {i}") for i in range(12)]
    file = await world.upload(jsonl(*rows, answer_row("word " * 800)))
    shown = (await world.call("GET", f"/v1/files/{file}")).json()

    told = await warnings_of(world, training_file=file)

    assert shown["warnings"] == []
    assert set(told) == {"file.answer_cut"}
    assert told["file.answer_cut"]["message"] == (
        "train.jsonl: line 13: the row has 4040 tokens, and training.max_seq_len keeps 512: the "
        "end of its answer is not learnt; raise training.max_seq_len, or shorten the row "
        "(answer_cut)."
    )


async def test_validating_on_the_training_rows_is_pointed_out(world: World) -> None:
    data = jsonl(*(answer_row(f"answer {i}") for i in range(12)))
    first, second = await world.upload(data), await world.upload(data)

    told = await warnings_of(world, training_file=first, validation_file=second)
    same = await warnings_of(world, training_file=first, validation_file=first)

    for found in (told, same):
        assert set(found) == {"file.validation_is_training"}
        assert "the same bytes" in found["file.validation_is_training"]["message"]
