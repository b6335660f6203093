"""Build the source of training steps and the evaluation for data files."""

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from trainer.contract import InputFile, RunSpec
from trainer.data.prefetch import BatchPrefetcher, evaluation_batches
from trainer.data.row_lengths import build_order
from trainer.data.step_input import FileStepSource, StepSource
from trainer.data.token_cache import tokens_name
from trainer.data.tokens import TokenSource, open_tokens
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
    agreement: FlagSync,
) -> tuple[StepSource, Evaluation | None]:
    """Return the step source of the training file and the loss on the validation file."""
    pad_id = tokenizer.pad_token_id
    rows = _tokens(rundir, spec, spec.training_file, tokenizer)
    path = rundir.input(spec.training_file.path)
    order = build_order(spec, path, rows, identity, partial(_sum_over_ranks, engine.device))
    feed = FileStepSource(BatchPrefetcher(rows, pad_id, spec, identity, order))
    if spec.validation_file is None:
        return feed, None
    kept = _tokens(rundir, spec, spec.validation_file, tokenizer)
    batches = partial(evaluation_batches, kept, pad_id, spec, identity)
    return feed, LossEvaluation(engine, batches, lambda: agreement.sync_flags().is_leaving)


def _sum_over_ranks(device: torch.device, mine: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum an array over all ranks; collective."""
    total = torch.from_numpy(mine).to(device)
    dist.all_reduce(total)
    found: NDArray[np.int64] = total.cpu().numpy()
    return found


def _tokens(rundir: RunDir, spec: RunSpec, file: InputFile, tokenizer: Any) -> TokenSource:  # noqa: ANN401
    cached = rundir.cache / tokens_name(spec, file)
    return open_tokens(cached, rundir.input(file.path), tokenizer, spec)
