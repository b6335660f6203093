"""Finish a run: export the model, verify it, and seal it for the upload.

A model that fails its verification is not uploaded: its weights are saved as a checkpoint, and the
job fails. After an interruption the next generation repeats all of it.
"""

import logging
import shutil
import time
from typing import Any

import torch.distributed as dist

from trainer.checkpoint import rng_state
from trainer.contract import NOT_THE_MODEL
from trainer.engine import ema, speedups
from trainer.export.hf_folder import ExportedModel, export_model, seal_export
from trainer.loop import LoopContext
from trainer.process.non_retryable import NonRetryableError
from trainer.process.watchdog import Watchdog
from trainer.rundir import RunDir
from trainer.state import TrainingState
from trainer.verify import launcher
from trainer.verify.result import MISMATCH, NOT_VERIFIED, OFF, Verification

log = logging.getLogger("trainer")


def hand_over_model(
    parts: LoopContext,
    rundir: RunDir,
    state: TrainingState,
    patient_group: Any,  # noqa: ANN401 - a process group
    watchdog: Watchdog,
) -> None:
    """Leave the finished model in the outbox; collective. Raises NonRetryableError on a mismatch.

    ``patient_group``: a process group with a long timeout, for ranks that wait while the first one
    writes and verifies.
    """
    spec, engine, identity = parts.spec, parts.engine, parts.identity
    warnings = (*spec.data_warnings, *_warn(parts, state))
    if spec.ema_decay:
        ema.swap_average(engine)
    rows = launcher.choose_verification_rows(rundir, spec) if spec.verify else []
    values = launcher.score_in_trainer(engine, rows, spec) if rows else []
    started_at = time.time()
    exported = export_model(engine, rundir, spec, identity, state)
    parts.journal.span("export", started_at, time.time())
    dist.barrier(patient_group)
    verification = Verification(status=OFF)
    if spec.verify:
        watchdog.expect_long()
        started_at = time.time()
        if exported is not None:
            expected = launcher.expected_export(engine, rundir, spec, exported.folder, rows, values)
            verification = launcher.run_verification(rundir, expected)
        verification = _broadcast(verification, patient_group)
        parts.journal.span("verify", started_at, time.time())
    if verification.status == MISMATCH:
        _keep_checkpoint(parts, state, exported)
        raise NonRetryableError(_mismatch(verification, state.step))
    if exported is not None:
        if verification.status == NOT_VERIFIED:
            parts.journal.warn("verification", text := launcher.not_verified_text(verification))
            warnings += (text,)
        elif verification.status != OFF:
            log.info(
                "verified: loss %s, the trainer's %s", verification.loss, verification.trainer_loss
            )
        seal_export(exported, rundir, spec, identity, state, verification, warnings)


def no_better_message(state: TrainingState, *, graded: bool) -> str:
    """Return a sentence about a model that is no better than its base, or "".

    ``graded``: its measure is the negated mean grade.
    """
    before = state.valid_loss_before
    after = state.metrics.valid_loss if state.metrics else None
    if before is None or after is None or after < before:
        return ""
    measure, sign = ("reward", -1) if graded else ("loss", 1)
    return (
        f"The tuned model is no better than its base on the validation file: its {measure} is "
        f"{sign * after:.4f}, before the first step it was {sign * before:.4f}. "
        "Train with more or other rows, a lower learning rate or fewer epochs, or keep the base "
        "model."
    )


def _warn(parts: LoopContext, state: TrainingState) -> tuple[str, ...]:
    """Warn the user of a model that is no better; return all warnings for the report."""
    unused = speedups.unused_speedups(parts.spec, parts.engine.device.type)
    if not (text := no_better_message(state, graded=parts.spec.reinforcement is not None)):
        return unused
    parts.journal.warn("no_better", text)
    return (*unused, text)


def _broadcast(verification: Verification, group: Any) -> Verification:  # noqa: ANN401
    """Return the first rank's result on every rank; collective."""
    payload = [verification.to_json()]
    dist.broadcast_object_list(payload, src=0, group=group)
    return Verification.from_json(payload[0])


def _keep_checkpoint(
    parts: LoopContext, state: TrainingState, exported: ExportedModel | None
) -> None:
    """Save the trained state as a checkpoint, and delete the export; collective."""
    if exported is not None:
        shutil.rmtree(exported.folder, ignore_errors=True)  # room for the checkpoint
    if parts.spec.ema_decay:
        ema.swap_average(parts.engine)
    parts.saver.save(state, rng_state.capture_rng(), "stop")
    parts.saver.wait()


def _mismatch(verification: Verification, step: int) -> str:
    return (
        f"{NOT_THE_MODEL}: the exported files are not the model that was trained: "
        f"{verification.reason}. The trained weights are kept in the checkpoint of step {step}: "
        "convert it with `python -m trainer.convert`, or submit the job again with "
        "training.verify false"
    )
