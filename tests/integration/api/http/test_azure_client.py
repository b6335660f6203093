"""Azure OpenAI's client: its header, its paths, its query."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI

from service.api.app import make_app
from tests.served import served
from tests.world import DATASET, MODEL, World


@pytest.fixture(params=["/openai?api-version", "/openai/v1", "/openai/v1/"])
async def client(world: World, request: pytest.FixtureRequest) -> AsyncIterator[AsyncOpenAI]:
    """AzureOpenAI as it is, and OpenAI with the base URL of Azure's v1 API."""
    async with served(make_app(world.parts)) as url:
        made: AsyncOpenAI
        if "?" in request.param:
            made = AsyncAzureOpenAI(
                azure_endpoint=url, api_version="2025-04-01-preview", api_key=world.key
            )
        else:
            made = AsyncOpenAI(base_url=f"{url}{request.param}", api_key=world.key)
        async with made:
            yield made


async def test_azure_openais_client_runs_a_job_from_upload_to_deletion(client: AsyncOpenAI) -> None:
    file = await client.files.create(file=("t.jsonl", DATASET), purpose="fine-tune")
    jobs = client.fine_tuning.jobs
    more = {"trainingType": 1}  # LiteLLM's Azure provider sends it always
    job = await jobs.create(model=MODEL, training_file=file.id, extra_body=more)
    paused = await jobs.pause(job.id)
    listed = await jobs.list(limit=1)
    events = await jobs.list_events(job.id)
    cancelled = await jobs.cancel(job.id)
    deleted = await client.files.delete(file.id)
    models = await client.models.list()

    assert deleted.deleted
    assert {job.id} == {paused.id, listed.data[0].id, cancelled.id}
    assert events.data
    assert MODEL in {model.id for model in models.data}
