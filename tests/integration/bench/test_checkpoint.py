"""The checkpoint benchmark end to end on a few MiB: each contestant really stores and loads."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.checkpoint.case import LIMIT, REKINDLE, CheckpointCase
from bench.checkpoint.run import DCP_DISK, CheckpointTools, measure, measure_rekindle
from bench.checkpoint.sink import running

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]  # processes import for long
TINY = CheckpointCase(contestant="", mib=3, ranks=1, tls=False, url="", folder="", saves=1, steps=2)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckpointTools]:
    """Run a sink that verifies checksums."""
    folder = tmp_path_factory.mktemp("bench")
    with running(folder, warm_mib=16, check=True) as sink:
        yield CheckpointTools(sink=sink, folder=folder, packages="")


@pytest.mark.parametrize("contestant", ["torch_save", DCP_DISK, "deepspeed", LIMIT])
def test_what_it_saved_it_loads_from_the_sink(tools: CheckpointTools, contestant: str) -> None:
    case = replace(TINY, contestant=contestant, url=tools.sink.url(tls=True), tls=True)
    measures = measure(tools, case)

    assert measures.same
    assert measures.stored_ratio is not None
    assert measures.stored_ratio >= 1
    assert (measures.stall_s is None) is (contestant == LIMIT)


def test_ours_loads_on_the_same_and_on_another_number_of_ranks(tools: CheckpointTools) -> None:
    case = replace(TINY, contestant=REKINDLE, url=tools.sink.url())
    measures, reshard = measure_rekindle(tools, case, 2)

    assert measures.same
    assert reshard.same
    assert (measures.ranks, reshard.ranks) == (1, 2)
    assert measures.stall_s is not None
    assert reshard.save_s is None


def test_a_case_leaves_nothing_behind(tools: CheckpointTools) -> None:
    measure(tools, replace(TINY, contestant=LIMIT, url=tools.sink.url()))
    remaining = [path.name for path in Path(tools.folder).iterdir() if path.is_dir()]

    assert remaining == []
