"""Build the micro-batches of a training step one step ahead, in a thread."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from rendering.tokens import Tokens
from trainer.contract import RunSpec
from trainer.data.batch import Batch, packed, padded, padded_with_classes
from trainer.data.order import micro_batch_samples, shuffled_row
from trainer.data.tokens import TokenSource
from trainer.state import RankIdentity

log = logging.getLogger(__name__)


class BatchPrefetcher:
    """One rank's share of the rows, in the seed's order."""

    def __init__(
        self,
        source: TokenSource,
        pad_id: int,
        spec: RunSpec,
        identity: RankIdentity,
        order: Callable[[int], int] | None = None,
    ) -> None:
        """Use ``order`` to find the row of a sample; None shuffles."""
        self._source, self._pad_id, self._spec = source, pad_id, spec
        rows = len(source) // spec.sequences_per_row
        self._row = order or partial(shuffled_row, spec.seed, rows)
        self._rank, self._world = identity.rank, identity.world_size
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._prefetched: tuple[int, Future[list[Batch]]] | None = None

    def step(self, consumed: int) -> list[Batch]:
        """Return the micro-batches of the training step that begins at this cursor."""
        if self._prefetched is None or self._prefetched[0] != consumed:
            self._prefetched = (consumed, self._thread.submit(self._build, consumed))
        batches = self._prefetched[1].result()
        after = consumed + self._spec.global_batch
        self._prefetched = (after, self._thread.submit(self._build, after))
        return batches

    def remaining_batches(self, consumed: int) -> Iterator[Batch]:
        """Yield this rank's share of all rows trained from this cursor on, each row once.

        Every rank yields the same number of micro-batches.
        """
        spec = self._spec
        last = spec.total_steps * spec.global_batch
        rows = sorted({self._row(cursor) for cursor in range(consumed, last)})
        for positions in micro_batch_samples(
            0, len(rows), spec.micro_batch, self._world, self._rank
        ):
            micro = [rows[position] for position in positions]
            yield self._thread.submit(_batch, self._source, micro, self._pad_id, spec).result()

    def _build(self, consumed: int) -> list[Batch]:
        spec = self._spec
        micro_batches = micro_batch_samples(
            consumed, spec.global_batch, spec.micro_batch, self._world, self._rank
        )
        rows = [[self._row(cursor) for cursor in micro] for micro in micro_batches]
        log.debug("after %d samples: rows %s", consumed, rows)
        return [_batch(self._source, micro, self._pad_id, spec) for micro in rows]


def evaluation_batches(
    source: TokenSource,
    pad_id: int,
    spec: RunSpec,
    identity: RankIdentity,
) -> Iterator[Batch]:
    """Yield this rank's share of the validation rows, in file order; as many on every rank."""
    rows = len(source) // spec.sequences_per_row
    for micro in micro_batch_samples(0, rows, spec.micro_batch, identity.world_size, identity.rank):
        yield _batch(source, micro, pad_id, spec)


def _batch(source: TokenSource, rows: list[int], pad_id: int, spec: RunSpec) -> Batch:
    """Collate all sequences of these rows; those of one row stay adjacent."""
    per_row = spec.sequences_per_row
    indices = [row * per_row + n for row in rows for n in range(per_row)]
    sequences = [source[index] for index in indices]
    if per_row > 1:
        groups = [sequences[first : first + per_row] for first in range(0, len(indices), per_row)]
        sequences = [sequence for group in groups for sequence in _untrain_equal_answers(group)]
    return _collate_function(spec)(sequences, pad_id, least=per_row)


def _untrain_equal_answers(answers: list[Tokens]) -> list[Tokens]:
    """Return a row's answers; without trained tokens where all of them are equal.

    Their gradients cancel except for rounding, which Adam would amplify to full steps.
    """
    trained = [answer for answer in answers if any(answer.trained)]
    if len(trained) > 1 and all(answer == trained[0] for answer in trained):
        return [Tokens(answer.ids, [False] * len(answer.ids)) for answer in answers]
    return answers


def _collate_function(spec: RunSpec) -> Callable[..., Batch]:
    if spec.method == "classification":
        return padded_with_classes
    return packed if spec.packing else padded
