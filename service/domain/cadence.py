"""How often a job saves, and how many evictions a save will answer, before anything was measured.

The trainer measures both soon, and chooses anew by the same formula (`trainer/cadence.py`).
"""

from service.domain.layout import Layout
from trainer.contract import BLOCK, Cadence, best_interval

STATE_BYTES = 12  # per trained parameter: fp32 master and two moments
COPY = 15e9  # bytes per second and GPU into host memory, all at once; assumed, not measured
CAPPED, UNCAPPED = 0.9e9, 1.8e9  # a node's uploads while it trains, and once it is told to go
NOTICE, COMMIT, SLACK = 30.0, 2.0, 3.0  # seconds: Azure's, ours, and until the wire must be idle
ANSWERED = 0.95  # of evictions come with a notice that we hear in time; assumed
BLOCK_DOLLARS = 0.055 / 10_000  # a write to the hot tier; Microsoft's sample prices, 2026-11


def plan(
    layout: Layout, trained: int, *, step: float, evictions_per_hour: float, dollars_per_hour: float
) -> tuple[float, Cadence]:
    """Seconds between two saves, and what that rests on; all figures are those of the whole job."""
    state = trained * STATE_BYTES
    on_node = state / layout.nodes
    stall = on_node / layout.processes_per_node / COPY
    needs = step / layout.accumulation + stall + on_node / UNCAPPED + COMMIT
    cadence = Cadence(
        evictions_per_hour=evictions_per_hour,
        answered=ANSWERED if needs <= NOTICE - SLACK else 0.0,
        seconds_per_block=BLOCK_DOLLARS / dollars_per_hour * 3600 if dollars_per_hour else 0.0,
    )
    blocks = -(-state // BLOCK)
    return best_interval(cadence, stall=stall, upload=on_node / CAPPED, blocks=blocks), cadence
