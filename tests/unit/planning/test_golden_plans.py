"""Whole plans in figures: a change of any formula behind them shows here.

The figures are not measured; `test_throughput` and `test_memory` compare with what is. After a
change of a formula on purpose, copy the new figures from the failure.
"""

from dataclasses import replace
from typing import Any

import pytest

from service.domain.performance.memory import GIB
from service.domain.planning.option import Option
from service.domain.planning.plan import make_plan
from service.domain.planning.plan_request import PlanRequest
from service.domain.training.recipe import Hyperparameters, Training
from tests.unit.planning.test_plan import (
    LLAMA_8B,
    LLAMA_70B,
    LORA,
    NC24,
    ND,
    ND40,
    OFFLOADED,
    PREFERRING,
    QLORA,
    REQUEST,
    REWARDING,
    TINY,
    offer,
)
from tests.unit.planning.test_reinforcement_plan import GRPO, PPO, training

NC96 = "Standard_NC96ads_A100_v4"
RATES = {ND: 0.02, NC96: 0.1, NC24: 0.3, ND40: 0.05}
SHARDED = Training(zero_stage=3, gradient_checkpointing=True)
SHORT = Training(lora=LORA, micro_batch=1, zero_stage=1)
ROLLED = training(replace(GRPO, steps_per_rollout=4), lora=LORA)
REPLAYED = replace(PPO, answers=6, steps_per_rollout=2, replay_share=0.5)


def request(on: str = ND, how: Training | None = None, **changes: Any) -> PlanRequest:  # noqa: ANN401 - of any type
    offers = (offer(on, "3.60", evictions_per_hour=RATES[on]),)
    return replace(REQUEST, offers=offers, training=how or REQUEST.training, **changes)


PLANS = {
    "whole": request(),
    "on one of four": request(NC96),
    "tiny": request(NC24, Training(max_seq_len=256, micro_batch=1), arch=TINY),
    "tiny on cpu": request(NC24, Training(max_seq_len=256), arch=TINY, accelerator="cpu"),
    "zero 1": request(how=SHORT, nodes=2),
    "zero 2": request(NC96, replace(SHORT, zero_stage=2), nodes=2),
    "zero 3": request(ND40, SHARDED),
    "70b": request(arch=LLAMA_70B),
    "qlora of 70b": request(NC96, Training(lora=QLORA), arch=LLAMA_70B),
    "offloaded": request(NC24, OFFLOADED),
    "fetched": request(NC96, replace(OFFLOADED, offload="parameters")),
    "dpo": request(how=PREFERRING),
    "reward": request(how=REWARDING),
    "last layers": request(how=Training(train_last_n_layers=4, train_embeddings=False)),
    "averaged": request(how=Training(ema_decay=0.99)),
    "grpo": request(how=ROLLED),
    "grpo of 70b": request(how=training(GRPO, lora=QLORA, max_seq_len=1024), arch=LLAMA_70B),
    "ppo, judged": request(how=training(REPLAYED, lora=LORA, max_seq_len=1024), judge=LLAMA_8B),
    "auto": request(hyperparameters=Hyperparameters(), examples=50_000),
    "auto, large": request(hyperparameters=Hyperparameters(), examples=50_001),
}
TABLE = """
whole:
1 x 8, zero 1, 2 x 4, 75.8 GiB, host 0, saved every 3415 s, 1707 s lost
469 x 1.452 s (1.016 to 2.178), 1340.1 to 1971.1 s, 1.34 to 1.97 USD, 0.007445 evictions

on one of four:
1 x 4, zero 2, 4 x 4, 71.51 GiB, host 0, saved every 1546 s, 773 s lost
469 x 8.318 s (5.823 to 12.48), 4723.5 to 7513.5 s, 4.72 to 7.51 USD, 0.1312 evictions

tiny:
1 x 1, zero 1, 1 x 64, 2.994 GiB, host 0, saved every 54.01 s, 1.35 s lost
469 x 0.9984 s (0.6989 to 1.498), 1135.1 to 1643.1 s, 1.14 to 1.64 USD, 0.09459 evictions

tiny on cpu:
1 x 1, zero 1, 64 x 1, 3.311 GiB, host 0, saved every 54.01 s, 1.35 s lost
469 x 24.18 s (9.67 to 60.44), 12579 to 31711 s, 12.58 to 31.71 USD, 1.048 evictions

zero 1:
2 x 8, zero 1, 1 x 4, 24 GiB, host 0, saved every 551.9 s, 13.8 s lost
469 x 0.8552 s (0.5986 to 1.283), 1050.4 to 1345.4 s, 2.10 to 2.69 USD, 0.01167 evictions

zero 2:
2 x 4, zero 2, 1 x 8, 23.88 GiB, host 0, saved every 249.8 s, 6.246 s lost
469 x 1.853 s (1.297 to 2.903), 1563.8 to 2337.3 s, 3.13 to 4.67 USD, 0.08688 evictions

zero 3:
1 x 8, zero 3, 2 x 4, 38.75 GiB, host 0, saved every 2160 s, 1080 s lost
469 x 2.816 s (1.971 to 4.224), 2009.8 to 3101.8 s, 2.01 to 3.10 USD, 0.02791 evictions

70b:
3 x 8, zero 3, 1 x 3, 73.13 GiB, host 0, saved every 3374 s, 1687 s lost
417 x 20.78 s (10.39 to 83.14), 9938.1 to 39271 s, 29.81 to 117.81 USD, 0.1656 evictions

qlora of 70b:
1 x 4, zero 1, 4 x 4, 74.04 GiB, host 0, saved every 1113 s, 27.84 s lost
469 x 32.22 s (22.55 to 48.33), 16431 to 24780 s, 16.43 to 24.78 USD, 0.4564 evictions

offloaded:
2 x 1, zero 1, 4 x 8, 71.51 GiB, host 82.27, saved every 477.6 s, 238.8 s lost
469 x 13.9 s (9.729 to 29.99), 8324.1 to 18914 s, 16.65 to 37.83 USD, 1.387 evictions

fetched:
1 x 4, zero 3, 8 x 2, 52.62 GiB, host 44.87, saved every 1546 s, 773 s lost
469 x 17.07 s (11.95 to 25.6), 8990.3 to 14215 s, 8.99 to 14.22 USD, 0.2497 evictions

dpo:
1 x 8, zero 2, 2 x 4, 71.51 GiB, host 0, saved every 3415 s, 1707 s lost
469 x 1.957 s (1.37 to 2.936), 1580.3 to 2360.4 s, 1.58 to 2.36 USD, 0.008779 evictions

reward:
1 x 8, zero 1, 4 x 2, 76.27 GiB, host 0, saved every 3415 s, 1707 s lost
469 x 1.424 s (0.9968 to 2.136), 1327 to 1949.6 s, 1.33 to 1.95 USD, 0.007372 evictions

last layers:
1 x 8, zero 1, 8 x 1, 58.73 GiB, host 0, saved every 3600 s, 90 s lost
469 x 1.071 s (0.7498 to 1.607), 1148.9 to 1479 s, 1.15 to 1.48 USD, 0.006383 evictions

averaged:
1 x 8, zero 1, 2 x 4, 79.91 GiB, host 0, saved every 3415 s, 1707 s lost
469 x 1.452 s (1.016 to 2.178), 1340.1 to 1971.1 s, 1.34 to 1.97 USD, 0.007445 evictions

grpo:
1 x 8, zero 1, 1 x 8, 52.21 GiB, host 0, saved every 1104 s, 27.59 s lost
469 x 23.95 s (9.582 to 71.86), 11918 to 34818 s, 11.92 to 34.82 USD, 0.06621 evictions

grpo of 70b:
1 x 8, zero 1, 1 x 8, 73.72 GiB, host 0, saved every 2460 s, 61.49 s lost
469 x 165.6 s (66.23 to 496.7), 78981 to 2.3584e+05 s, 78.98 to 235.84 USD, 0.4388 evictions

ppo, judged:
1 x 8, zero 3, 1 x 8, 60.94 GiB, host 0, saved every 1561 s, 39.02 s lost
469 x 95.3 s (38.12 to 285.9), 45501 to 1.3592e+05 s, 45.50 to 135.92 USD, 0.2528 evictions

auto:
1 x 8, zero 1, 2 x 4, 75.8 GiB, host 0, saved every 3415 s, 1707 s lost
2344 x 1.452 s (1.016 to 2.178), 4097.4 to 6352.7 s, 4.10 to 6.35 USD, 0.02276 evictions

auto, large:
1 x 8, zero 1, 2 x 4, 75.8 GiB, host 0, saved every 3415 s, 1707 s lost
782 x 1.452 s (1.016 to 2.178), 1800.4 to 2715.1 s, 1.80 to 2.72 USD, 0.01 evictions
"""
FIGURES = dict(zip(PLANS, TABLE.strip().split("\n\n"), strict=True))


def figures(o: Option) -> str:
    """Return the layout and its estimates as text, most of them rounded to four digits."""
    return (
        f"{o.nodes} x {o.processes_per_node}, zero {o.zero_stage}, {o.micro_batch} x "
        f"{o.accumulation}, {o.memory.needed / GIB:.4g} GiB, host {o.memory.host / GIB:.4g}, "
        f"saved every {o.checkpoint_seconds:.4g} s, {o.undone_seconds():.4g} s lost\n"
        f"{o.total_steps} x {o.seconds_per_step:.4g} s ({o.seconds_per_step_p10:.4g} to "
        f"{o.seconds_per_step_p90:.4g}), {o.duration_p50:.5g} to {o.duration_p90:.5g} s, "
        f"{o.cost_p50} to {o.cost_p90} USD, {o.expected_evictions:.4g} evictions"
    )


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_has_the_figures_of_the_table(name: str) -> None:
    assert f"{name}:\n{figures(make_plan(PLANS[name]).chosen)}" == FIGURES[name]
