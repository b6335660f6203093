"""Elastic jobs: on how many nodes they may train, and when it pays to grow again. Pure.

The global batch and the order of samples never change. Fewer nodes take more micro-steps for
each training step, as ``trainer/data/order.py`` shares them out; the last one may be short.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

LIVELY = timedelta(seconds=60)  # who has been quiet for longer is not let in
# How long enough machines wait for stragglers before they train without them. To take one in
# later costs a restart, 118 s as measured (ADR 0017): a wait as long as that costs at most twice
# as much as the best choice.
STRAGGLERS = timedelta(seconds=120)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a training step consists of, whatever the number of nodes."""

    rows: int  # the global batch
    rows_per_node: int  # of one micro-step: micro-batch x processes

    def micro_steps(self, nodes: int) -> int:
        """How many it takes on so many nodes; the time of a training step goes with it."""
        return -(-self.rows // (self.rows_per_node * nodes))

    def admits(self, nodes: int) -> bool:
        """True when no smaller number of nodes is as fast: none of them is there for nothing.

        >>> [n for n in range(1, 5) if Batch(rows=64, rows_per_node=16).admits(n)]
        [1, 2, 4]
        """
        return nodes == 1 or self.micro_steps(nodes) < self.micro_steps(nodes - 1)


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """What a job allows, beside the full number of nodes that it was planned for."""

    min_nodes: int
    node_counts: tuple[int, ...]  # that it may train on; ascending, the full number last
    batch: Batch

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> Self | None:
        """As the plan has it; None for a job that keeps its world size."""
        members = plan.get("elastic")
        if members is None:
            return None
        rows_per_node = plan["micro_batch"] * plan["processes_per_node"]
        batch = Batch(rows=plan["global_batch"], rows_per_node=rows_per_node)
        counts = tuple(members["node_counts"])
        return cls(min_nodes=members["min_nodes"], node_counts=counts, batch=batch)

    def as_dict(self) -> dict[str, Any]:
        """What the plan says of it; the batch is told there anyway."""
        return {"min_nodes": self.min_nodes, "node_counts": list(self.node_counts)}


def node_counts(batch: Batch, *, min_nodes: int, nodes: int) -> tuple[int, ...]:
    """How many nodes the batch allows, from ``min_nodes`` to the full number; that always."""
    return (*(n for n in range(min_nodes, nodes) if batch.admits(n)), nodes)


def largest(counts: tuple[int, ...], available: int) -> int:
    """The most of ``counts`` that so many nodes are enough for; 0 when they are too few."""
    return max((n for n in counts if n <= available), default=0)


def batch_to_choose(batch: Batch, *, min_nodes: int, nodes: int) -> int:
    """The smallest global batch, not below this one, that admits a smaller number of nodes.

    It is a multiple of what one micro-step takes on all nodes, as every global batch is.

    >>> batch_to_choose(Batch(rows=64, rows_per_node=16), min_nodes=3, nodes=4)
    128
    """
    unit = batch.rows_per_node * nodes
    rows = math.ceil(batch.rows / unit) * unit
    while len(node_counts(replace(batch, rows=rows), min_nodes=min_nodes, nodes=nodes)) == 1:
        rows += unit
    return rows


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of the time ahead, in seconds; infinite where nothing says otherwise."""

    remaining: float = math.inf  # to the last step, on the nodes that train now
    disruption: float = math.inf  # until the next eviction, on average
    restart: float = 0.0  # from the word to save until the next generation's first step
    arrival: float = 0.0  # from asking for a machine until it has joined, as it was here before
    next_join: float = math.inf  # until one more machine joins, which is on its way


UNKNOWN = Outlook()


def growth_pays(batch: Batch, now: int, then: int, outlook: Outlook) -> bool:
    """Whether to stop ``now`` nodes for a restart with ``then`` of them.

    All stand still for the restart C; from there to the end of the horizon H they are faster by
    k(now)/k(then), with k the micro-steps. That is more work done when H > C k(now) / (k(now) -
    k(then)); for one node more and a batch that divides evenly it is H > n C, with n the new
    number (ADR 0017). H ends with the job, with the next eviction or when the next machine joins:
    so those that come within a short time join together.
    """
    horizon = min(outlook.remaining, outlook.disruption, outlook.next_join)
    return _pays(batch, now, then, horizon, outlook.restart)


def worth_asking(batch: Batch, now: int, then: int, outlook: Outlook) -> bool:
    """Whether a machine that is asked for now can still be of use when it has joined."""
    horizon = outlook.remaining - outlook.arrival
    return _pays(batch, now, then, horizon, outlook.restart)


def _pays(batch: Batch, now: int, then: int, horizon: float, restart: float) -> bool:
    slow, fast = batch.micro_steps(now), batch.micro_steps(then)
    return fast < slow and horizon > 0 and horizon * (slow - fast) > restart * slow
