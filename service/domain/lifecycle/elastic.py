"""Elastic training: allowed node counts, and when growing pays. Pure.

The global batch and the order of samples never change. Fewer nodes take more micro-steps for each
training step, as ``trainer/data/order.py`` shares them out; the last one may be short.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

MAX_QUIET = timedelta(seconds=60)  # a node without a heartbeat for longer may not join
# How long enough machines wait for stragglers before they train without them. To take one in
# later costs a restart, 118 s as measured (ADR 0017): a wait as long as that costs at most twice
# as much as the best choice.
STRAGGLER_TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """The samples of a training step, whatever the number of nodes."""

    rows: int  # the global batch
    rows_per_node: int  # of one micro-step: micro-batch x processes

    def micro_steps(self, nodes: int) -> int:
        """Return the micro-steps of a training step on ``nodes`` nodes."""
        return -(-self.rows // (self.rows_per_node * nodes))

    def admits(self, nodes: int) -> bool:
        """Return whether fewer nodes would be slower: every node contributes.

        >>> [n for n in range(1, 5) if StepBatch(rows=64, rows_per_node=16).admits(n)]
        [1, 2, 4]
        """
        return nodes == 1 or self.micro_steps(nodes) < self.micro_steps(nodes - 1)


@dataclass(frozen=True, kw_only=True)
class ElasticNodes:
    """The node counts that a job allows, beside its planned full number."""

    min_nodes: int
    node_counts: tuple[int, ...]  # that it may train on; ascending, the full number last
    batch: StepBatch

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> Self | None:
        """Parse a plan; None for a job with a fixed world size."""
        members = plan.get("elastic")
        if members is None:
            return None
        rows_per_node = plan["micro_batch"] * plan["processes_per_node"]
        batch = StepBatch(rows=plan["global_batch"], rows_per_node=rows_per_node)
        counts = tuple(members["node_counts"])
        return cls(min_nodes=members["min_nodes"], node_counts=counts, batch=batch)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan's member `elastic`; the plan stores the batch itself."""
        return {"min_nodes": self.min_nodes, "node_counts": list(self.node_counts)}


def allowed_node_counts(batch: StepBatch, *, min_nodes: int, nodes: int) -> tuple[int, ...]:
    """Return the useful node counts from ``min_nodes`` on; always with the full number."""
    return (*(n for n in range(min_nodes, nodes) if batch.admits(n)), nodes)


def largest_count(counts: tuple[int, ...], available: int) -> int:
    """Return the largest of ``counts`` that ``available`` nodes suffice for; 0 if none."""
    return max((n for n in counts if n <= available), default=0)


def smallest_elastic_batch(batch: StepBatch, *, min_nodes: int, nodes: int) -> int:
    """Return the smallest global batch, not below this one, that allows fewer nodes.

    It is a multiple of what one micro-step takes on all nodes, as every global batch is.

    >>> smallest_elastic_batch(StepBatch(rows=64, rows_per_node=16), min_nodes=3, nodes=4)
    128
    """
    unit = batch.rows_per_node * nodes
    rows = math.ceil(batch.rows / unit) * unit
    while (
        len(allowed_node_counts(replace(batch, rows=rows), min_nodes=min_nodes, nodes=nodes)) == 1
    ):
        rows += unit
    return rows


@dataclass(frozen=True, kw_only=True)
class GrowthOutlook:
    """Expected times in seconds that decide about growth; infinite where unknown."""

    remaining: float = math.inf  # to the last step, on the nodes that train now
    disruption: float = math.inf  # until the next eviction, on average
    restart: float = 0.0  # from the word to save until the next generation's first step
    arrival: float = 0.0  # from asking for a machine until it has joined, as it was here before
    next_join: float = math.inf  # until one more machine joins, which is on its way


UNKNOWN_OUTLOOK = GrowthOutlook()


def is_growth_worthwhile(
    batch: StepBatch, count: int, next_count: int, outlook: GrowthOutlook
) -> bool:
    """Return whether to stop ``count`` nodes for a restart with ``next_count`` of them.

    All stand still for the restart C; from there to the end of the horizon H they are faster by
    k(now)/k(then), with k the micro-steps. That is more work done when H > C k(now) / (k(now) -
    k(then)); for one node more and a batch that divides evenly it is H > n C, with n the new number
    (ADR 0017). H ends with the job, with the next eviction or when the next machine joins: so those
    that come within a short time join together.
    """
    horizon = min(outlook.remaining, outlook.disruption, outlook.next_join)
    return _is_worthwhile(batch, count, next_count, horizon, outlook.restart)


def is_request_worthwhile(
    batch: StepBatch, count: int, next_count: int, outlook: GrowthOutlook
) -> bool:
    """Return whether a machine requested now can still be useful once it joins."""
    horizon = outlook.remaining - outlook.arrival
    return _is_worthwhile(batch, count, next_count, horizon, outlook.restart)


def _is_worthwhile(
    batch: StepBatch, count: int, next_count: int, horizon: float, restart: float
) -> bool:
    slow, fast = batch.micro_steps(count), batch.micro_steps(next_count)
    return fast < slow and horizon > 0 and horizon * (slow - fast) > restart * slow
