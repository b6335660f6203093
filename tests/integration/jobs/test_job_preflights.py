"""A job's rows are checked before machines: what fails, what is warned of, what is counted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.operations.jobs.preflights import Preflights, _code_hash
from service.preflight.inline import InlineChecker
from tests.vocabulary import TEMPLATE, tokenizer_files
from tests.world import MODEL, World, stage
from trainer.contract import RUN_SPEC, RunSpec

JOBS = "/v1/fine_tuning/jobs"
STRICT = (
    "{%- if messages[0].role == 'system' -%}{{ raise_exception('no system role') }}{%- endif -%}"
)
REWRITING = TEMPLATE.replace(
    "{%- generation -%}", "{%- generation -%}{%- if loop.last -%}{{- '(hm) ' -}}{%- endif -%}"
)


def chat(*texts: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    roles = ("user", "assistant") * len(texts)
    messages = [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]
    return {"messages": messages, **fields}


def file_of(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


GOOD = [chat(f"{n} + 2?", f"{n + 2}") for n in range(20)]
SYSTEM = {"messages": [{"role": "system", "content": "Be brief."}, *GOOD[0]["messages"]]}


async def prepared(world: World, rows: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a job on these rows as it is shown after some seconds."""
    job = await world.submit(training_file=await world.upload(file_of(*rows)), **fields)
    await world.tick(3)
    return await world.job(job["id"])


async def test_a_row_that_the_template_refuses_fails_the_job_before_any_machine(
    world: World,
) -> None:
    await stage(world.store, "strict", tokenizer=tokenizer_files(STRICT + TEMPLATE))
    job = await prepared(world, [*GOOD, SYSTEM], model="strict")

    assert job["status"] == "failed"
    assert (job["error"]["code"], job["error"]["param"]) == (
        "invalid_training_file",
        "training_file",
    )
    assert "1 of 21 rows cannot be trained on. Line 21: " in job["error"]["message"]
    assert "put that text before the first user message" in job["error"]["message"]
    assert await world.attempts_of(job["id"]) == []
    assert world.cloud.list_existing(()) == []


async def test_a_plan_for_such_a_file_is_refused_with_the_same_words(world: World) -> None:
    await stage(world.store, "strict", tokenizer=tokenizer_files(STRICT + TEMPLATE))
    body = {"model": "strict", "training_file": await world.upload(file_of(*GOOD, SYSTEM))}
    response = await world.call("POST", f"{JOBS}?dry_run=true", json=body)

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_training_file"
    assert "Line 21" in response.json()["error"]["message"]


async def test_answers_that_are_all_cut_off_fail_the_job_and_some_only_warn(world: World) -> None:
    long_row = chat("word " * 40, "4")
    fields = {"training": {"max_seq_len": 64}}
    all_cut = await prepared(world, [long_row] * 12, **fields)
    some_cut = await prepared(world, [*GOOD, long_row], **fields)

    assert all_cut["status"] == "failed"
    assert "nothing of its answer is learnt" in all_cut["error"]["message"]
    assert some_cut["status"] == "queued"
    warnings = [text for text in some_cut["plan"]["warnings"] if "(row_not_trained)" in text]
    assert "line 21" in warnings[0]
    spec = RunSpec.from_json((await world.store.read(some_cut["id"], RUN_SPEC))[0])
    assert warnings[0] in spec.data_warnings


async def test_a_validation_file_that_measures_nothing_only_warns(world: World) -> None:
    validation = await world.upload(file_of(*[chat("word " * 40, "4")] * 12))
    options = {"validation_file": validation, "training": {"max_seq_len": 64}}
    job = await prepared(world, GOOD, **options)

    assert job["status"] == "queued"
    assert any("row_not_trained" in text for text in job["plan"]["warnings"])


async def test_the_plan_counts_tokens_exactly_and_says_what_has_changed(world: World) -> None:
    job = await prepared(world, GOOD)
    events = (await world.call("GET", f"{JOBS}/{job['id']}/events?limit=50")).json()["data"]

    data = job["plan"]["data"]
    assert (data["rows"], data["examples"]) == (20, 20)
    assert data["trained_tokens"] == sum(len(row["messages"][1]["content"]) + 1 for row in GOOD)
    message = next(e["message"] for e in events if e["code"] == "plan.counted")
    assert message.startswith("Counted 20 examples with ")


async def test_each_trained_answer_is_an_example_where_the_template_rewrites_history(
    world: World,
) -> None:
    """The validation file alone needs it; both are read in the same way."""
    await stage(world.store, "thinks", tokenizer=tokenizer_files(REWRITING))
    validation = await world.upload(file_of(*[chat("a?", "b", "c?", "d")] * 12))
    batch = {"method": {"type": "supervised", "supervised": {"hyperparameters": {"batch_size": 2}}}}
    job = await prepared(world, GOOD, model="thinks", validation_file=validation, **batch)
    spec = RunSpec.from_json((await world.store.read(job["id"], RUN_SPEC))[0])

    assert spec.split_answers
    assert job["plan"]["data"]["examples"] == 20
    assert any("24 examples of 12 rows" in text for text in job["plan"]["warnings"])


class Counting(InlineChecker):
    """How often rows are checked."""

    def __init__(self) -> None:
        self.checks = 0

    async def check(self, *arguments: Any) -> Any:  # noqa: ANN401
        self.checks += 1
        return await super().check(*arguments)


async def test_the_same_content_and_model_are_checked_once(world: World) -> None:
    counting = Counting()
    for _ in range(2):  # replicas
        checks = Preflights(
            engine=world.engine, store=world.store, checker=counting, now=world.clock
        )
        preparation = replace(world.jobs.preparation, preflights=checks)
        world.jobs = replace(world.jobs, preparation=preparation)
        await prepared(world, GOOD)
    await stage(world.store, MODEL, tokenizer=tokenizer_files(STRICT + TEMPLATE))
    await prepared(world, GOOD)

    assert counting.checks == 2


async def test_a_model_without_a_tokenizer_fails_the_job_with_what_to_do(world: World) -> None:
    files = {name: data for name, data in tokenizer_files().items() if "tokenizer" not in name}
    await stage(world.store, "bare", tokenizer=files)
    job = await prepared(world, GOOD, model="bare")

    assert job["status"] == "failed"
    assert job["error"]["code"] == "unsupported_model"
    assert "tokenizer.json" in job["error"]["message"]


def test_another_release_of_a_library_that_renders_checks_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _code_hash()
    codes = {before}
    for library in ("jinja2", "tokenizers"):
        metadata_folder = tmp_path / library / f"{library}-0.0.1.dist-info"
        metadata_folder.mkdir(parents=True)
        (metadata_folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {library}\nVersion: 0.0.1\n"
        )
        monkeypatch.syspath_prepend(metadata_folder.parent)
        _code_hash.cache_clear()
        codes.add(_code_hash())
    monkeypatch.undo()
    _code_hash.cache_clear()

    assert len(codes) == 3
    assert _code_hash() == before
