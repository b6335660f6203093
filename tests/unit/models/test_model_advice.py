"""What a user is told about a base model that cannot be used: what it lacks, and which can."""

import pytest

from service.domain.errors import InvalidRequest
from service.operations.models import models
from service.operations.models.models import describe_defect
from service.storage.fake import MemoryStore
from tests.world import stage


async def refusal(store: MemoryStore, name: str) -> str:
    with pytest.raises(InvalidRequest) as refused:
        await models.find_staged_model(store, name)
    return refused.value.message


async def test_without_any_staged_model_a_refusal_says_how_to_stage_one() -> None:
    message = await refusal(MemoryStore(), "gpt-0")

    assert message == (
        "Model 'gpt-0' is not staged here. No base model is staged. "
        "To stage a model: python -m rekindle.stage --name NAME DIR"
    )


async def test_a_refusal_names_the_models_that_are_staged_and_no_other() -> None:
    store = MemoryStore()
    for number in range(7):
        await stage(store, f"acme/model-{number}")

    message = await refusal(store, "gpt-0")

    assert "Use acme/model-0, " in message
    assert "acme/model-4 and 2 more (GET /v1/models)" in message
    assert "tiny-llama" not in message


async def test_a_model_whose_head_is_broken_is_not_among_those_to_use() -> None:
    store = MemoryStore()
    await stage(store, "acme/good")
    container = models.container("acme/broken")
    await store.create_container(container)
    await store.write(container, models.HEAD, b"{}")

    message = await refusal(store, "acme/broken")

    assert "is staged incorrectly" in message
    assert "Use acme/good. To stage a model" in message


async def test_a_base_model_is_known_once_its_head_says_that_name() -> None:
    store, container = MemoryStore(), models.container("m")
    await store.create_container(container)
    nothing = await models.find_base_model(store, "m")
    await stage(store, "another")
    head, _ = await store.read(models.container("another"), models.HEAD)
    await store.write(container, models.HEAD, head)

    assert (nothing, await models.find_base_model(store, "m")) == (None, None)
    base_model = await models.find_base_model(store, "another")
    assert base_model is not None
    assert base_model.name == "another"


INDEX = "model.safetensors.index.json"


def shards(*numbers: int, count: int = 3) -> set[str]:
    return {f"model-{n:05}-of-{count:05}.safetensors" for n in numbers}


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"model.safetensors"}, ""),
        ({INDEX, *shards(1, 2, 3)}, ""),
        ({INDEX, "weights-a.safetensors"}, ""),  # the index alone knows
        ({INDEX, *shards(1, 3)}, "model-00002-of-00003.safetensors is missing"),
        ({INDEX, *shards(2, 3)}, "model-00001-of-00003.safetensors is missing"),
        ({INDEX, *shards(1, count=10**9)}, "model-00002-of-1000000000.safetensors is missing"),
        (shards(1, 2, 3), f"neither model.safetensors nor {INDEX}"),
        ({"config.json"}, "neither model.safetensors nor"),
        (set(), "neither model.safetensors nor"),
        ({"model.safetensors", "adapter_config.json"}, "makes it an adapter"),
    ],
)
def test_a_staged_model_that_lacks_a_file_says_which(files: set[str], reason: str) -> None:
    defect = describe_defect(files)

    assert reason in defect
    assert bool(defect) == bool(reason)
