"""A file's rows as a base model reads them, and what is odd about them."""

import json
from typing import Any

from service.db.files.files import CONTAINER
from service.operations.models import models
from tests.datasets import PAIRS, PROMPT, jsonl, labelled, prompts, rankings
from tests.integration.finished_jobs import make_model
from tests.vocabulary import TEMPLATE, tokenizer_files
from tests.world import DATASET, JOBS, MODEL, ROW, World, stage

Json = dict[str, Any]
REWRITING = TEMPLATE.replace(
    "{%- generation -%}", "{%- generation -%}{%- if loop.last -%}{{- '(hm) ' -}}{%- endif -%}"
)


async def preview(world: World, file: str, **query: Any) -> Json:  # noqa: ANN401
    preview_body: Json = await world.get(f"/v1/files/{file}/preview", **{"model": MODEL} | query)
    return preview_body


async def test_rows_are_shown_with_what_is_trained(world: World) -> None:
    page = await preview(world, await world.upload(), limit=2)

    assert {n: page[n] for n in ("object", "model", "method", "max_seq_len")} == {
        "object": "file.preview",
        "model": MODEL,
        "method": "supervised",
        "max_seq_len": 512,
    }
    assert (page["splits_answers"], page["has_more"], page["next_line"]) == (False, True, 3)
    assert [row["line"] for row in page["data"]] == [1, 2]
    assert page["data"][0] == {
        "line": 1,
        "examples": [
            {
                "part": "chat",
                "tokens": 45,
                "kept_tokens": 45,
                "trained_tokens": 6,
                "segments": [
                    {
                        "kind": "context",
                        "text": "<|bos|>user: What is two and two?<|end|>assistant: ",
                    },
                    {"kind": "trained", "text": "Four.<|end|>"},
                ],
            }
        ],
        "problems": [],
    }


async def test_the_method_is_the_usual_one_for_the_rows_unless_asked_for(world: World) -> None:
    pair = ["preferred", "non_preferred"]
    cases: list[tuple[bytes, str | None, str, list[str]]] = [
        (DATASET, None, "supervised", ["chat"]),
        (PAIRS, None, "dpo", pair),
        (PAIRS, "orpo", "orpo", pair),
        (PAIRS, "reward", "reward", pair),
        (rankings(2), None, "reward", ["ranked"] * 2),
        (prompts(), None, "reinforcement", ["prompt"]),
        (labelled("a", "b"), None, "classification", ["labelled"]),
    ]
    for data, method_body, method, parts in cases:
        file = await world.upload(data)
        page = await preview(world, file, **({"method": method_body} if method_body else {}))

        assert page["method"] == method
        assert [e["part"] for e in page["data"][0]["examples"]] == parts


async def test_a_prompt_is_held_against_the_room_beside_its_answer(world: World) -> None:
    """By default an answer may take half of max_seq_len."""
    file = await world.upload(jsonl([PROMPT]))
    page = await preview(world, file, max_seq_len=40)

    (example,) = page["data"][0]["examples"]
    assert (example["tokens"], example["kept_tokens"]) == (39, 20)
    assert [p["code"] for p in page["data"][0]["problems"]] == ["long_row"]


async def test_problems_name_the_row_its_fault_and_a_remedy(world: World) -> None:
    strict = TEMPLATE.replace(
        "{%- for message in messages -%}",
        "{%- for message in messages -%}{%- if message['role'] == 'system' -%}"
        "{{- raise_exception('no system role') -}}{%- endif -%}",
    )
    await stage(world.store, "strict", tokenizer=tokenizer_files(strict))
    system = {"messages": [{"role": "system", "content": "Be brief."}, *ROW["messages"]]}
    file = await world.upload(jsonl([ROW, system, ROW]))

    rows = (await preview(world, file, model="strict"))["data"]

    assert [row["line"] for row in rows] == [1, 2, 3]
    assert [len(row["examples"]) for row in rows] == [1, 0, 1]
    (problem,) = rows[1]["problems"]
    assert (problem["code"], problem["is_error"]) == ("template_refuses", True)
    assert "no system role" in problem["message"]
    assert "before the first user message" in problem["message"]


async def test_answers_are_split_where_a_check_of_the_whole_file_has_found_so(world: World) -> None:
    """The rows that are shown would not tell."""
    await stage(world.store, "rewriting", tokenizer=tokenizer_files(REWRITING))
    double_row = {"messages": [*ROW["messages"], *ROW["messages"]]}
    file = await world.upload(jsonl([*[ROW] * 20, double_row]))

    before = await preview(world, file, model="rewriting", limit=1)
    plan = {"model": "rewriting", "training_file": file}
    response = await world.call("POST", "/v1/fine_tuning/jobs?dry_run=true", json=plan)
    after = await preview(world, file, model="rewriting", limit=1)

    assert response.status_code == 200, response.text
    assert (before["splits_answers"], after["splits_answers"]) == (False, True)


async def test_a_model_of_ones_own_reads_a_file(world: World) -> None:
    file, job = await world.upload(), await make_model(world)

    page = await preview(world, file, model=job["fine_tuned_model"])

    assert page["model"] == job["fine_tuned_model"]
    assert page["data"][0]["examples"][0]["trained_tokens"] == 6


async def test_what_is_gone_from_the_storage_account_is_named(world: World) -> None:
    file, second = await world.upload(), await world.upload()
    await world.store.delete(CONTAINER, file)
    query = {"model": MODEL}
    without_file = await world.call("GET", f"/v1/files/{file}/preview", params=query)
    await stage(world.store, "halved")
    await world.store.delete(models.container("halved"), "main-1/tokenizer.json")
    query = {"model": "halved"}
    without_model = await world.call("GET", f"/v1/files/{second}/preview", params=query)

    assert without_file.status_code == 404
    assert "The blob of file" in without_file.json()["error"]["message"]
    error = without_model.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_model", "model")


def lines_of(*rows: dict[str, Any]) -> bytes:
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
    file = await world.upload(lines_of(*rows, *rows[:11], {"messages": [*ROW["messages"][1:]]}))

    warnings = await warnings_of(world, training_file=file)

    assert set(warnings) == {"file.duplicate_row", "file.missing_user_message"}
    message = warnings["file.duplicate_row"]["message"]
    assert message.startswith("train.jsonl: 11 lines (13, 14, 15, ")
    assert "22 and more); the first: the row is the same as line 1." in message
    assert warnings["file.duplicate_row"]["data"]["count"] == 11
    assert [w["line"] for w in warnings["file.duplicate_row"]["data"]["warnings"]] == [
        *range(13, 24)
    ]
    assert "line 24: no message is the user's." in warnings["file.missing_user_message"]["message"]


async def test_long_rows_are_held_against_the_jobs_own_context(world: World) -> None:
    """The tiny model takes 512 tokens; the file was fine for the usual 2048."""
    rows = [answer_row(f"answer {i}") for i in range(12)]
    file = await world.upload(lines_of(*rows, answer_row("word " * 800)))
    file_object = (await world.call("GET", f"/v1/files/{file}")).json()

    warnings = await warnings_of(world, training_file=file)

    assert file_object["warnings"] == []
    assert set(warnings) == {"file.answer_cut"}
    assert warnings["file.answer_cut"]["message"] == (
        "train.jsonl: line 13: the row has 4040 tokens, and training.max_seq_len keeps 512: the "
        "end of its answer is not learnt; raise training.max_seq_len, or shorten the row "
        "(answer_cut)."
    )


async def test_validating_on_the_training_rows_is_pointed_out(world: World) -> None:
    data = lines_of(*(answer_row(f"answer {i}") for i in range(12)))
    first, second = await world.upload(data), await world.upload(data)

    warnings = await warnings_of(world, training_file=first, validation_file=second)
    same_file_warnings = await warnings_of(world, training_file=first, validation_file=first)

    for file_warnings in (warnings, same_file_warnings):
        assert set(file_warnings) == {"file.validation_is_training"}
        assert "the same bytes" in file_warnings["file.validation_is_training"]["message"]
