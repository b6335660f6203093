"""What the loop is fed with, and what it evaluates: rows of files."""

from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from trainer.contract import InputFile, RunSpec
from trainer.data.prefetch import Feed, evaluation_batches
from trainer.data.row_lengths import order_of
from trainer.data.step_input import Feeding, FromFile
from trainer.data.token_cache import tokens_name
from trainer.data.tokens import Source, open_tokens
from trainer.engine.evaluation import Evaluation, Losses
from trainer.process.sync_flags import Agreement
from trainer.rundir import RunDir
from trainer.state import Identity


def from_files(
    spec: RunSpec,
    rundir: RunDir,
    identity: Identity,
    engine: Any,  # noqa: ANN401 - deepspeed and transformers are untyped here
    tokenizer: Any,  # noqa: ANN401
    agreement: Agreement,
) -> tuple[Feeding, Evaluation | None]:
    """Rows, and the loss on those of the validation file."""
    pad_id = tokenizer.pad_token_id
    rows = _tokens(rundir, spec, spec.training_file, tokenizer)
    path = rundir.input(spec.training_file.path)
    order = order_of(spec, path, rows, identity, partial(_summed, engine.device))
    feed = FromFile(Feed(rows, pad_id, spec, identity, order))
    if spec.validation_file is None:
        return feed, None
    kept = _tokens(rundir, spec, spec.validation_file, tokenizer)
    batches = partial(evaluation_batches, kept, pad_id, spec, identity)
    return feed, Losses(engine, batches, lambda: agreement.reach().leaving)


def _summed(device: torch.device, mine: NDArray[np.int64]) -> NDArray[np.int64]:
    """Over all ranks; collective."""
    total = torch.from_numpy(mine).to(device)
    dist.all_reduce(total)
    found: NDArray[np.int64] = total.cpu().numpy()
    return found


def _tokens(rundir: RunDir, spec: RunSpec, file: InputFile, tokenizer: Any) -> Source:  # noqa: ANN401
    cached = rundir.cache / tokens_name(spec, file)
    return open_tokens(cached, rundir.input(file.path), tokenizer, spec)
