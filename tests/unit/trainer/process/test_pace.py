"""How fast ranks are, and this computer."""

import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rendering.tokens import Tokens
from tests.unit.trainer.process.trainer_spec import ME, SPEC
from trainer.data.batch import packed, padded
from trainer.engine.utilization import (
    COMPARE_EVERY,
    UtilizationMeter,
    _flops_per_token,
    count_tokens,
    peak_memory,
    slowest_rank,
)
from trainer.process.cpu_speed import measure_cpu_flops

pytestmark = pytest.mark.usefixtures("world_of_one")

ROWS = [Tokens([1, 2, 3, 4], [False, True, True, True]), Tokens([5, 6], [False, True])]


@dataclass
class Engine:
    """A place to compute, and a model."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    module: Any = None


class Model(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Embeddings of 10, a layer of 20 weights, a head of 30."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(5, 2)
        self.layer = torch.nn.Linear(2, 10, bias=False)
        self.config = SimpleNamespace(tie_word_embeddings=tied)
        if not tied:
            self.head = torch.nn.Linear(10, 3, bias=False)

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.table


def test_the_slowest_rank_is_held_against_the_median_one() -> None:
    assert slowest_rank([1.0, 1.5, 1.0, 1.0]) == {"slowest_rank": 1, "slowest_ratio": 1.5}
    assert slowest_rank([2.0, 1.0]) == {"slowest_rank": 0, "slowest_ratio": 2.0}


def test_ranks_are_looked_at_now_and_then_and_a_rank_alone_is_not_slow() -> None:
    pace = UtilizationMeter(Engine(), SPEC, ME)

    assert pace.step_metrics(COMPARE_EVERY - 1, 8, 1.0) == {}
    metrics = pace.step_metrics(COMPARE_EVERY, 8, 1.0)

    assert set(metrics) == {"peak_memory"}
    assert 2**20 < metrics["peak_memory"] <= peak_memory(torch.device("cpu"))


def test_padding_does_not_count_as_tokens_that_went_through_the_model() -> None:
    assert count_tokens(padded(ROWS, 0)) == count_tokens(packed(ROWS, 0)) == 6


def test_a_weight_costs_less_where_it_is_not_trained_and_nothing_where_it_is_looked_up() -> None:
    apart, tied = Model(tied=False), Model(tied=True)
    frozen = Model(tied=False)
    frozen.layer.requires_grad_(False)

    assert _flops_per_token(apart) == 6 * (20 + 30)
    assert _flops_per_token(tied) == 6 * (20 + 10)
    assert _flops_per_token(frozen) == 4 * 20 + 6 * 30


def test_the_speed_of_this_computer_is_measured_in_two_seconds() -> None:
    started_at = time.process_time()

    flops = measure_cpu_flops()

    assert 1e8 < flops < 1e13  # of one thread
    assert time.process_time() - started_at < 2
