"""A job on a base model that cannot be loaded is refused before it costs anything."""

import pytest

from service.operations.models.models import missing_files

INDEX = "model.safetensors.index.json"


def shards(*numbers: int, count: int = 3) -> set[str]:
    return {f"model-{n:05}-of-{count:05}.safetensors" for n in numbers}


@pytest.mark.parametrize(
    ("files", "why"),
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
def test_a_staged_model_that_lacks_a_file_says_which(files: set[str], why: str) -> None:
    assert missing_files(files).endswith(why) if not why else why in missing_files(files)
    assert bool(missing_files(files)) == bool(why)
