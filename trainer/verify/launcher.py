"""The trainer's side of the verification: compute expected values and start the process.

The first rank starts it after the export and before the supervisor may upload. An interruption of
the verification thus interrupts the export: a later generation repeats both.
"""

import logging
import subprocess
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import torch

from trainer.contract import RunSpec
from trainer.data.token_cache import tokens_name
from trainer.engine import speedups
from trainer.model import sequence_head
from trainer.model.actor_critic import actor_of
from trainer.model.eval_mode import evaluation_mode
from trainer.model.precision import dtype_of
from trainer.model.tokenizer import base_folder, load_tokenizer
from trainer.rundir import RunDir, write_atomically
from trainer.verify.checks import ExpectedExport
from trainer.verify.loading import NAMES
from trainer.verify.result import NOT_VERIFIED, Verification
from trainer.verify.rows import VerificationRow, VerificationRows, choose_rows, verified_file
from trainer.verify.scores import Values, score_rows
from trainer.verify.tokenizer_facts import read_facts

LIMIT = 900.0  # seconds for the fresh process

log = logging.getLogger("trainer")


def choose_verification_rows(rundir: RunDir, spec: RunSpec) -> list[VerificationRow]:
    """Return the sequences to score, the same on every rank."""
    file = verified_file(spec)
    tokenizer = load_tokenizer(base_folder(rundir, spec.base_model), spec.method)
    cached = rundir.cache / tokens_name(spec, file)
    source = VerificationRows(rundir.input(file.path), cached, tokenizer, spec)
    return choose_rows(source, spec, by_score=sequence_head.has_head(spec))


def score_in_trainer(engine: Any, rows: list[VerificationRow], spec: RunSpec) -> Values:  # noqa: ANN401
    """Score the sequences with the model in memory; collective."""
    with evaluation_mode(engine):
        return score_rows(engine, rows, spec, engine.device, packed=spec.packing)


def expected_export(
    engine: Any,  # noqa: ANN401
    rundir: RunDir,
    spec: RunSpec,
    model: Path,
    rows: list[VerificationRow],
    values: Values,
) -> ExpectedExport:
    """Return what the process must find in the folder ``model``. First rank only."""
    base = base_folder(rundir, spec.base_model)
    cuda = engine.device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
    pad = load_tokenizer(base, spec.method).pad_token if sequence_head.has_head(spec) else None
    return ExpectedExport(
        model=str(model.resolve()),
        base=str(base.resolve()),
        data=str(rundir.input(verified_file(spec).path).absolute()),
        rows=tuple(rows),
        values=tuple(map(tuple, values)),
        dtypes=_dtypes(actor_of(engine.module), spec),
        tokenizer=read_facts(base),
        pad_token=pad,
        device=f"cuda:{engine.device.index}" if cuda else "cpu",
        exact=not (spec.packing or _other_kernels(spec, engine.device.type)),
        gpu_memory=torch.cuda.mem_get_info()[0] if cuda else 0,
        host_memory=psutil.virtual_memory().available,
    )


def run_verification(
    rundir: RunDir, expected: ExpectedExport, limit: float = LIMIT
) -> Verification:
    """Verify in a fresh process, which ends with this one."""
    if not expected.rows:
        return Verification(
            status=NOT_VERIFIED, reason=f"{Path(expected.data).name} has no row to score"
        )
    folder = rundir.verification
    expected_path, result_path = folder / "expected.json", folder / "result.json"
    write_atomically(expected_path, expected.to_json())
    result_path.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "trainer.verify",
        *map(str, (rundir.root, expected_path, result_path)),
    ]
    log.info("verifying the exported model in a fresh process")
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            child.kill()
            return _not_verified(f"it took longer than {limit:.0f} seconds")
    if not result_path.exists():
        return _not_verified(_exit_message(status))
    return Verification.from_json(result_path.read_bytes())


def _not_verified(reason: str) -> Verification:
    return Verification(status=NOT_VERIFIED, reason=reason)


def _exit_message(status: int) -> str:
    if status < 0:
        why = "; the machine's memory may have run out" if status == -9 else ""
        return f"the verifying process was ended by signal {-status}{why}"
    return f"the verifying process ended with status {status} and no result"


def _dtypes(model: Any, spec: RunSpec) -> tuple[str, ...]:  # noqa: ANN401
    """Return the allowed dtypes of the exported weights, under safetensors' names."""
    saved = model.state_dict().keys()  # without buffers that are computed anew at every start
    tensors = chain(model.named_parameters(), model.named_buffers())
    own = _floating((name, tensor) for name, tensor in tensors if name in saved)
    quantized = spec.is_quantized  # exported over the original weights
    dtypes = own | ({dtype_of(spec)} if quantized else set())
    return tuple(sorted(NAMES.get(dtype, str(dtype)) for dtype in dtypes))


def _floating(tensors: Iterable[tuple[str, Any]]) -> set[torch.dtype]:
    weights = (t for name, t in tensors if ".lora_" not in name)
    return {t.dtype for t in weights if t.dtype.is_floating_point}


def _other_kernels(spec: RunSpec, device: str) -> bool:
    """Return whether the trainer uses other kernels than plain transformers."""
    options = {"fused_kernels": spec.fused_kernels, "compiled": spec.compiled}
    unused = {sentence.split()[0] for sentence in speedups.unused_speedups(spec, device)}
    return any(enabled and name not in unused for name, enabled in options.items())


def not_verified_text(verification: Verification) -> str:
    """Return the user's warning about a model that could not be verified."""
    return (
        f"The exported model was not verified: {verification.reason}. "
        "Load it once before you use it."
    )
