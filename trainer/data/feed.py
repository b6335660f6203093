"""The micro-batches of a training step, read and tokenized one step ahead in a thread."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from trainer.contract import RunSpec
from trainer.data.batch import Batch, collate
from trainer.data.chat import tokenize
from trainer.data.order import cursors, row_at
from trainer.data.rows import Rows
from trainer.state import Identity


class Feed:
    """One rank's share of the rows, in the order that the seed gives."""

    def __init__(self, rows: Rows, tokenizer: Any, spec: RunSpec, identity: Identity) -> None:  # noqa: ANN401
        self._rows, self._tokenizer, self._spec = rows, tokenizer, spec
        self._rank, self._world = identity.rank, identity.world_size
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._ahead: tuple[int, Future[list[Batch]]] | None = None

    def step(self, consumed: int) -> list[Batch]:
        """The micro-batches of the training step that begins at this cursor."""
        if self._ahead is None or self._ahead[0] != consumed:
            self._ahead = (consumed, self._thread.submit(self._build, consumed))
        batches = self._ahead[1].result()
        after = consumed + self._spec.global_batch
        self._ahead = (after, self._thread.submit(self._build, after))
        return batches

    def _build(self, consumed: int) -> list[Batch]:
        spec = self._spec
        mine = cursors(consumed, spec.global_batch, spec.micro_batch, self._world, self._rank)
        return [self._micro(micro) for micro in mine]

    def _micro(self, micro: list[int]) -> Batch:
        numbers = [row_at(self._spec.seed, len(self._rows), cursor) for cursor in micro]
        tokens = [tokenize(self._tokenizer, self._rows[n], self._spec.max_seq_len) for n in numbers]
        return collate(tokens, self._tokenizer.pad_token_id)


def evaluation_batches(
    rows: Rows,
    tokenizer: Any,  # noqa: ANN401
    spec: RunSpec,
    identity: Identity,
) -> Iterator[Batch]:
    """This rank's share of the validation rows, in file order; as many batches on every rank."""
    for micro in cursors(0, len(rows), spec.micro_batch, identity.world_size, identity.rank):
        tokens = [tokenize(tokenizer, rows[n], spec.max_seq_len) for n in micro]
        yield collate(tokens, tokenizer.pad_token_id)
