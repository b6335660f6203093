"""Build the source of training steps and the evaluation for data files.

Orders other than a shuffle need the lengths of all rows before the first step: every rank measures
its share. A row's length does not depend on the source of its tokens, so a later generation, or
another world size, gets the same order.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from rendering.templates.tool_calls import Json
from trainer.contract import InputFile, RunSpec
from trainer.data.order import CurriculumOrder, LengthMixOrder
from trainer.data.prefetch import BatchPrefetcher, evaluation_batches
from trainer.data.rows import JsonlRows
from trainer.data.step_input import FileStepSource, StepSource
from trainer.data.token_cache import tokens_name
from trainer.data.tokens import TokenSource, open_run_rows, open_tokens
from trainer.engine.evaluation import Evaluation, LossEvaluation
from trainer.process.sync_flags import FlagSync
from trainer.rundir import RunDir
from trainer.state import RankIdentity


def build_file_source(
    spec: RunSpec,
    rundir: RunDir,
    identity: RankIdentity,
    engine: Any,  # noqa: ANN401 - deepspeed and transformers are untyped here
    tokenizer: Any,  # noqa: ANN401
    flag_sync: FlagSync,
) -> tuple[StepSource, Evaluation | None]:
    """Return the step source of the training file and the loss on the validation file."""
    pad_id = tokenizer.pad_token_id
    rows = _tokens(rundir, spec, spec.training_file, tokenizer)
    path = rundir.input(spec.training_file.path)
    order = build_order(spec, path, rows, identity, partial(_sum_over_ranks, engine.device))
    source = FileStepSource(BatchPrefetcher(rows, pad_id, spec, identity, order))
    if spec.validation_file is None:
        return source, None
    validation_rows = _tokens(rundir, spec, spec.validation_file, tokenizer)
    batches = partial(evaluation_batches, validation_rows, pad_id, spec, identity)
    return source, LossEvaluation(engine, batches, lambda: flag_sync.sync_flags().is_stopping)


def _sum_over_ranks(device: torch.device, array: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum an array over all ranks; collective."""
    total = torch.from_numpy(array).to(device)
    dist.all_reduce(total)
    result: NDArray[np.int64] = total.cpu().numpy()
    return result


def _tokens(rundir: RunDir, spec: RunSpec, file: InputFile, tokenizer: Any) -> TokenSource:  # noqa: ANN401
    cached = rundir.cache / tokens_name(spec, file)
    return open_tokens(cached, rundir.input(file.path), tokenizer, spec)


Order = Callable[[int], int]  # from the number of a sample to its row
SumOverRanks = Callable[[NDArray[np.int64]], NDArray[np.int64]]  # over all ranks; collective


def build_order(
    spec: RunSpec, path: Path, source: TokenSource, identity: RankIdentity, summed: SumOverRanks
) -> Order | None:
    """Return the order that the run spec asks for; None for a shuffle. ``path`` has the rows."""
    if spec.mix is not None:
        tokens = summed(_count_tokens(source, spec.sequences_per_row, identity))
        return LengthMixOrder(spec.seed, tokens, spec.mix).row
    if spec.curriculum is None:
        return None
    turns = summed(_count_turns(open_run_rows(path, spec), identity))
    tokens = summed(_count_tokens(source, spec.sequences_per_row, identity))
    return CurriculumOrder(spec.seed, turns, tokens, spec.curriculum, spec.global_batch).row


def _count_tokens(source: TokenSource, per_row: int, identity: RankIdentity) -> NDArray[np.int64]:
    """Return the tokens of each row of this rank's share [rows]; 0 for the others."""
    counts = np.zeros(len(source) // per_row, dtype=np.int64)
    for row in _share(len(counts), identity):
        counts[row] = sum(source.length(row * per_row + n) for n in range(per_row))
    return counts


def _count_turns(rows: JsonlRows, identity: RankIdentity) -> NDArray[np.int64]:
    """Return the messages of each row of this rank's share [rows]; 0 for the others."""
    counts = np.zeros(len(rows), dtype=np.int64)
    for row in _share(len(rows), identity):
        counts[row] = max(_messages(chat) for chat in rows[row])
    return counts


def _messages(chat: Json) -> int:
    return len(chat["messages"]) if "messages" in chat else 1


def _share(rows: int, identity: RankIdentity) -> range:
    return range(identity.rank, rows, identity.world_size)
