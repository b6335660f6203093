"""A world of one process, and the tiny model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from trainer.tiny import build


@pytest.fixture(scope="module")
def world_of_one() -> Iterator[None]:
    """Run in a process group with this process alone in it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny model, which no test may change."""
    folder = tmp_path_factory.mktemp("base") / "tiny"
    build(folder)
    return folder
