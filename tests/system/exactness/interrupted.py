"""Training runs that are killed at a random moment, for `matrix.py`."""

import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.system.exactness.pairings import OFF_POLICY
from tests.system.exactness.savers import QLORA
from tests.system.exactness.worlds import (
    DEADLINE,
    LORA,
    POLL,
    RANKS,
    Outcome,
    by_grades,
    children,
    kill_world,
    make_spec,
    outcome,
    prepare,
    read_metrics,
    read_saves,
    run_world,
    start_world,
    wait_for_step,
    wait_until,
)
from trainer.contract import RunSpec
from trainer.rundir import RunDir


def interrupted(inputs: Path) -> dict[str, RunSpec]:
    """By name; of each way to train what has the most to lose."""
    spec = replace(make_spec(inputs), total_steps=8, eval_steps=3)
    off_policy = by_grades(inputs, "ppo", **OFF_POLICY)
    return {
        "killed-sft-full-zero3-bf16": replace(spec, zero_stage=3),
        "killed-sft-qlora-zero2-bf16": replace(spec, lora=QLORA),
        "killed-grpo-full-zero2-bf16": replace(by_grades(inputs, "grpo"), total_steps=8),
        "killed-ppo-lora-zero2-bf16": replace(off_policy, lora=LORA, total_steps=8),
    }


def interrupt(root: Path, spec: RunSpec, inputs: Path) -> dict[str, object]:
    """Compare a run that is stopped at random and killed while it saves with an undisturbed one."""
    uninterrupted = run_world(prepare(root / "whole", spec, inputs))
    stopped = told_at_random(prepare(root / "told", spec, inputs), spec, random.Random(root.name))
    often = replace(spec, checkpoint_seconds=0.0)
    killed = killed_while_saving(
        prepare(root / "killed", often, inputs, resume=stopped),
        lambda saved: prepare(root / "last", spec, inputs, resume=saved),
    )
    last = run_world(RunDir(root / "last"))
    return {
        "told_at": stopped.step,
        "resumed_from": killed.step,
        "resumed_later": uninterrupted.step > killed.step > stopped.step > 0,
        "losses_equal": stopped.losses | killed.losses | last.losses == uninterrupted.losses,
        "parameters_equal": last.parameters_sha256 == uninterrupted.parameters_sha256 != "",
        "parameters_sha256": uninterrupted.parameters_sha256,
    }


def told_at_random(rundir: RunDir, spec: RunSpec, chance: random.Random) -> Outcome:
    """SIGTERM to one rank, any one, somewhere within a step: the other learns it from that one."""
    process = start_world(rundir)
    try:
        wait_for_step(rundir, chance.randint(1, spec.total_steps // 4), process)
        seconds = max(read_metrics(rundir).items())[1].seconds
        POLL.wait(chance.random() * seconds)
        os.kill(chance.choice(sorted(children(process.pid))), signal.SIGTERM)
        process.communicate(timeout=DEADLINE)
    finally:
        kill_world(process)
    return outcome(rundir, RANKS)


def killed_while_saving(rundir: RunDir, upload: Callable[[Outcome], object]) -> Outcome:
    """SIGKILL to all once the save after the first has begun; the first is uploaded before."""
    process = start_world(rundir)
    try:
        wait_until(lambda: bool(read_saves(rundir)), process)
        saves = read_saves(rundir)
        saved = Outcome("killed", saves[0].step, read_metrics(rundir), saves, rundir)
        upload(saved)
        shutil.rmtree(rundir.save_folder(saves[0].path))  # which is what frees its slots
        wait_until(lambda: any(rundir.outbox.glob("*/rank-*.safetensors")), process)
    finally:
        kill_world(process)
    return replace(saved, metrics=read_metrics(rundir))
