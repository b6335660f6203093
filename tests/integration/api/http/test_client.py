"""OpenAI's own client, strict about every answer, against uvicorn and a real Blob server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, BadRequestError, ConflictError
from openai.types.fine_tuning import FineTuningJob
from openai.types.graders import StringCheckGrader, StringCheckGraderParam

from service.api.app import make_app
from service.storage.azure import AzureBlobStore
from tests.azurite import Azurite
from tests.datasets import GRADER, PAIRS, prompts
from tests.nodes.scripted_node import boot, commit, committed, say_all, train
from tests.served import served
from tests.world import DATASET, MODEL, World, stage
from trainer.contract import NodePhase


@pytest.fixture
async def client(world: World, azurite: Azurite) -> AsyncIterator[AsyncOpenAI]:
    """Yield a strict client; files lie in Azurite, machines are scripted."""
    store = AzureBlobStore(azurite.connection_string)
    await stage(store, MODEL)
    async with (
        served(make_app(replace(world.parts, store=store))) as url,
        strict(world, url) as sdk_client,
    ):
        yield sdk_client
    await store.close()


@pytest.fixture
async def trained(world: World) -> AsyncIterator[AsyncOpenAI]:
    """Yield a strict client of the world in which machines are scripted, store and all."""
    async with served(make_app(world.parts)) as url, strict(world, url) as sdk_client:
        yield sdk_client


@asynccontextmanager
async def strict(world: World, url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        api_key=world.key, base_url=f"{url}/v1", _strict_response_validation=True
    ) as sdk_client:
        yield sdk_client


async def submit(client: AsyncOpenAI, **fields: object) -> FineTuningJob:
    file = await client.files.create(file=("t.jsonl", DATASET), purpose="fine-tune")
    return await client.fine_tuning.jobs.create(
        model=MODEL,
        training_file=file.id,
        **fields,  # type: ignore[arg-type]
    )


async def test_files_are_taken_given_back_and_deleted(client: AsyncOpenAI, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(DATASET)

    files = [
        await client.files.create(file=file, purpose="fine-tune")
        for file in (("named.jsonl", DATASET), path, DATASET)
    ]

    assert [f.filename for f in files] == ["named.jsonl", "mine.jsonl", "upload"]
    assert {f.bytes for f in files} == {len(DATASET)}
    assert (await client.files.wait_for_processing(files[0].id)).status == "processed"
    assert await client.files.retrieve(files[1].id) == files[1]
    assert (await client.files.content(files[1].id)).content == DATASET
    deleted = await client.files.delete(files[1].id)
    assert (deleted.id, deleted.deleted) == (files[1].id, True)
    assert {f.id async for f in client.files.list()} == {files[0].id, files[2].id}


async def test_files_are_listed_once_page_by_page(client: AsyncOpenAI, world: World) -> None:
    names = [f"{n}.jsonl" for n in range(5)]
    for name in names:
        world.clock.advance(seconds=1)
        await client.files.create(file=(name, DATASET), purpose="fine-tune")

    files = client.files.list
    assert [f.filename async for f in files(limit=2, order="asc")] == names
    assert [f.filename async for f in files(limit=2, purpose="fine-tune")] == names[::-1]
    assert (await files(purpose="batch")).data == []


async def test_a_job_keeps_what_the_client_asked_for(client: AsyncOpenAI) -> None:
    validation = await client.files.create(file=DATASET, purpose="fine-tune")
    job = await submit(
        client,
        validation_file=validation.id,
        suffix="mine",
        seed=7,
        metadata={"team": "nlp"},
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2}}},
        extra_body={"infrastructure": {"nodes": 2}, "training": {"precision": "fp32"}},
    )

    assert await client.fine_tuning.jobs.retrieve(job.id) == job
    assert job.status == "validating_files"
    assert (job.validation_file, job.seed, job.metadata) == (validation.id, 7, {"team": "nlp"})
    assert (job.fine_tuned_model, job.trained_tokens, job.error) == (None, None, None)
    assert job.method is not None
    assert job.method.supervised is not None
    assert job.method.supervised.hyperparameters is not None
    assert job.method.supervised.hyperparameters.n_epochs == job.hyperparameters.n_epochs == 2
    assert job.model_extra is not None
    assert job.model_extra["user_provided_suffix"] == "mine"
    assert job.model_extra["plan"]["nodes"] == 2
    assert job.model_extra["plan"]["recipe"]["precision"] == "fp32"


async def test_a_job_of_another_method_is_known_to_the_client(client: AsyncOpenAI) -> None:
    pairs = await client.files.create(file=("p.jsonl", PAIRS), purpose="fine-tune")
    rows = await client.files.create(file=("r.jsonl", prompts()), purpose="fine-tune")
    grader = StringCheckGraderParam(**GRADER)  # type: ignore[typeddict-item] # of plain strings
    hyper: Any = {"n_epochs": 2, "compute_multiplier": 0.5, "eval_interval": 5}
    method_body: Any = {"grader": grader, "hyperparameters": hyper}
    requests: list[tuple[str, Any]] = [
        (pairs.id, {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.5, "n_epochs": 2}}}),
        (rows.id, {"type": "reinforcement", "reinforcement": method_body}),
    ]
    jobs = client.fine_tuning.jobs
    created = [
        await jobs.create(model=MODEL, training_file=f, method=method) for f, method in requests
    ]
    methods = [job.method for job in created]

    assert [await jobs.retrieve(job.id) for job in created] == created
    assert pairs.model_extra is not None
    assert pairs.model_extra["format"] == "preference"
    assert methods[0] is not None
    assert methods[0].dpo is not None
    assert methods[0].dpo.hyperparameters is not None
    assert methods[0].dpo.hyperparameters.beta == 0.5
    assert methods[0].dpo.hyperparameters.n_epochs == created[0].hyperparameters.n_epochs == 2
    assert methods[0].dpo.model_extra == {"loss": "sigmoid", "label_smoothing": 0.0}
    assert methods[1] is not None
    assert methods[1].reinforcement is not None
    assert isinstance(methods[1].reinforcement.grader, StringCheckGrader)
    reinforcement = methods[1].reinforcement.to_dict()
    assert (reinforcement["grader"], reinforcement["answers"]) == (GRADER, 4)
    hyperparameters = {"n_epochs": 2, "eval_interval": 5, "reasoning_effort": "default"}
    assert hyperparameters.items() <= reinforcement["hyperparameters"].items()  # type: ignore[attr-defined] # JSON


async def test_graders_are_checked_and_run(client: AsyncOpenAI) -> None:
    graders = client.fine_tuning.alpha.graders
    valid_grader = StringCheckGraderParam(**GRADER)  # type: ignore[typeddict-item] # of plain strings
    invalid_grader = valid_grader | {"operation": "gt"}

    checked = await graders.validate(grader=valid_grader)
    with pytest.raises(BadRequestError) as error:
        await graders.validate(grader=invalid_grader)
    right = await graders.run(grader=valid_grader, model_sample="four", item={"answer": "four"})
    failed = await graders.run(grader=valid_grader, model_sample="four")

    assert isinstance(checked.grader, StringCheckGrader)
    assert (error.value.param, error.value.status_code) == ("grader.operation", 400)
    assert (right.reward, right.metadata.type, right.sub_rewards) == (1.0, "string_check", {})
    assert (failed.reward, failed.metadata.errors.invalid_variable_error) == (0.0, True)
    assert not failed.metadata.errors.sample_parse_error


async def test_cancel_pause_and_resume_may_be_said_twice(client: AsyncOpenAI) -> None:
    jobs = client.fine_tuning.jobs
    job = await submit(client)
    replies = [
        await verb(job.id)
        for verb in (jobs.pause, jobs.pause, jobs.resume, jobs.resume, jobs.cancel, jobs.cancel)
    ]

    assert {j.id for j in replies} == {job.id}
    events = [e.message async for e in jobs.list_events(job.id, limit=1)]
    assert events[:3] == ["Cancel requested", "Resume requested", "Pause requested"]


async def test_a_finished_job_shows_what_it_has_made(trained: AsyncOpenAI, world: World) -> None:
    jobs = trained.fine_tuning.jobs
    job = await world.submit(suffix="mine")
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    for step in (1, 2, 3):
        await commit(world, job["id"], committed(step, number))
    await world.tick()
    assert (await jobs.retrieve(job["id"])).status == "running"
    await commit(world, job["id"], committed(10, number, "final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=10)
    await world.tick(2)

    completed = await jobs.retrieve(job["id"])
    job_list = [job async for job in jobs.list()]
    events = [e async for e in jobs.list_events(job["id"], limit=3)]
    checkpoints = [c async for c in jobs.checkpoints.list(job["id"], limit=2)]

    assert completed.status == job_list[0].status == "succeeded"
    assert (completed.trained_tokens, completed.finished_at) == (
        100,
        int(world.clock().timestamp()),
    )
    assert str(completed.fine_tuned_model).endswith(f":mine:{job['id']}")
    assert len({e.id for e in events}) == len(events) > 3
    assert events[-1].message.startswith("Created job")
    assert {c.step_number for c in checkpoints} >= {1, 2, 3}
    assert {c.fine_tuning_job_id for c in checkpoints} == {job["id"]}
    with pytest.raises(ConflictError) as error:
        await jobs.pause(job["id"])
    assert error.value.code == "invalid_job_state"


async def test_a_failed_job_says_why_even_with_a_nul(trained: AsyncOpenAI, world: World) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    for _ in range(3):
        number = await train(world, nodes, step=1)
        for node in nodes:
            response = await node.say(NodePhase.FAILED, number, error="ValueError: no\0pe")
            assert response.status_code == 200
    await world.tick(3)

    failed = await trained.fine_tuning.jobs.retrieve(job["id"])

    assert (failed.status, failed.fine_tuned_model) == ("failed", None)
    assert failed.error is not None
    assert failed.error.code == "trainer_error"
    assert "no\ufffdpe" in failed.error.message


@pytest.fixture(params=["/openai?api-version", "/openai/v1", "/openai/v1/"])
async def azure(world: World, request: pytest.FixtureRequest) -> AsyncIterator[AsyncOpenAI]:
    """AzureOpenAI as it is, and OpenAI with the base URL of Azure's v1 API."""
    async with served(make_app(world.parts)) as url:
        raw_client: AsyncOpenAI
        if "?" in request.param:
            raw_client = AsyncAzureOpenAI(
                azure_endpoint=url, api_version="2025-04-01-preview", api_key=world.key
            )
        else:
            raw_client = AsyncOpenAI(base_url=f"{url}{request.param}", api_key=world.key)
        async with raw_client:
            yield raw_client


async def test_azure_openais_client_runs_a_job_from_upload_to_deletion(azure: AsyncOpenAI) -> None:
    file = await azure.files.create(file=("t.jsonl", DATASET), purpose="fine-tune")
    jobs = azure.fine_tuning.jobs
    extra_body = {"trainingType": 1}  # LiteLLM's Azure provider sends it always
    job = await jobs.create(model=MODEL, training_file=file.id, extra_body=extra_body)
    paused = await jobs.pause(job.id)
    page = await jobs.list(limit=1)
    events = await jobs.list_events(job.id)
    cancelled = await jobs.cancel(job.id)
    deleted = await azure.files.delete(file.id)
    models = await azure.models.list()

    assert deleted.deleted
    assert {job.id} == {paused.id, page.data[0].id, cancelled.id}
    assert events.data
    assert MODEL in {model.id for model in models.data}
