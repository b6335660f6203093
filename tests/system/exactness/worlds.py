"""Real torchrun worlds, stopped and resumed, to compare with one that never was.

On the CPU, two ranks each; with REKINDLE_ACCELERATOR=cuda one rank on each GPU of this machine.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import ports
from tests.system.exactness import preloaded
from tests.system.exactness.preloaded import ForkedWorld
from trainer.contract import (
    MANIFEST,
    Dpo,
    FileEntry,
    Generation,
    InputFile,
    Lora,
    Manifest,
    Member,
    PinnedModel,
    Reinforcement,
    Rung,
    RunSpec,
    StepMetrics,
)
from trainer.rundir import RankResult, RankSave, RunDir
from trainer.sample_data.tiny_chats import write_preferences, write_prompts, write_samples

ROOT = Path(__file__).resolve().parents[3]
TRAINER = "trainer.train"
ACCELERATOR = os.environ.get("REKINDLE_ACCELERATOR", "cpu")  # noqa: TID251 - as the trainer does
LORA = Lora(rank=4, alpha=8, dropout=0.1)
DPO = Dpo(beta=0.1)
GRADED = Reinforcement(
    algorithm="grpo",
    grader=json.dumps(
        {
            "type": "python",
            "name": "letters",
            "source": (
                "def grade(sample, item):\n"
                "    text = sample['output_text']\n"
                "    return text.count('e') / max(len(text), 1) if item['answer'] else 0\n"
            ),
        }
    ),
    answers=4,
    max_answer_tokens=12,
    beta=0.05,
)
SPEC_SHA256 = "5" * 64
DEADLINE = 900.0
World = subprocess.Popen[str] | ForkedWorld
POLL = threading.Event()  # never set: waiting on it is a pause


def _ranks() -> int:
    if ACCELERATOR == "cpu":
        return 2
    import torch  # noqa: PLC0415 - seconds, and tests on the CPU need none of it

    count: int = torch.cuda.device_count()
    if not count:
        raise RuntimeError("torch sees no GPU here: leave REKINDLE_ACCELERATOR out")
    return count


RANKS = _ranks()


@dataclass(frozen=True)
class Outcome:
    """What one world left behind."""

    how: str
    step: int
    metrics: dict[int, StepMetrics]  # by step
    saves: tuple[RankSave, ...]  # whole ones, by rank 0's record
    rundir: RunDir

    @property
    def losses(self) -> dict[int, float]:
        """Training loss by step."""
        return {step: m.loss for step, m in self.metrics.items()}

    @property
    def parameters_sha256(self) -> str:
        """Of the exported model; empty without one."""
        return next((s.parameters_sha256 for s in self.saves if s.kind == "final"), "")

    @property
    def checkpoint(self) -> RankSave:
        """The newest whole save that can be resumed from."""
        return max((s for s in self.saves if s.kind != "final"), key=lambda s: s.step)


def build_inputs(folder: Path) -> Path:
    """Build the tiny model and its data, laid out like a RunDir's inputs."""
    model = folder / "models" / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    if ACCELERATOR == "cpu":
        output, _ = preloaded.start("trainer.tiny", model, folder / "printed").communicate(DEADLINE)
        assert model.exists(), output
    else:
        subprocess.run([sys.executable, "-m", "trainer.tiny", str(model)], cwd=ROOT, check=True)
    write_samples(folder / "files" / "train.jsonl", rows=40, seed=1)
    write_samples(folder / "files" / "valid.jsonl", rows=9, seed=2)
    write_preferences(folder / "files" / "preferred.jsonl", rows=40, seed=1)
    write_preferences(folder / "files" / "preferred-valid.jsonl", rows=9, seed=2)
    write_prompts(folder / "files" / "prompts.jsonl", rows=40, seed=1)
    write_prompts(folder / "files" / "prompts-valid.jsonl", rows=9, seed=2)
    return folder


def without_dropout(inputs: Path, folder: Path) -> Path:
    """Copy the inputs with a model without dropout, whose masks depend on the world size."""
    shutil.copytree(inputs, folder)
    drop_dropout(folder / "models" / "tiny")
    return folder


def drop_dropout(model: Path) -> None:
    """Configure the model in this folder to have no dropout."""
    config = model / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"attention_dropout": 0.0}))


def make_spec(inputs: Path) -> RunSpec:
    """Twelve steps of eight rows: the data's 40 rows are gone through more than twice."""
    files = sorted((inputs / "models" / "tiny").iterdir())
    return RunSpec(
        version=1,
        job_id="ftjob-exact",
        seed=7,
        method="supervised",
        base_model=PinnedModel(
            name="rekindle/tiny-llama",
            revision="0",
            files=tuple(described(inputs, file) for file in files),
        ),
        training_file=described(inputs, inputs / "files" / "train.jsonl"),
        validation_file=described(inputs, inputs / "files" / "valid.jsonl"),
        total_steps=12,
        global_batch=8,
        micro_batch=2,
        max_seq_len=128,
        learning_rate=3e-3,
        warmup_steps=3,
        min_lr_ratio=0.1,
        weight_decay=0.1,
        max_grad_norm=1.0,
        precision="bf16",
        zero_stage=2,
        lora=None,
        gradient_checkpointing=False,
        checkpoint_seconds=3600.0,
        eval_steps=5,
        nodes=1,
        processes_per_node=2,
    )


def by_preferences(inputs: Path, dpo: Dpo | None = DPO) -> RunSpec:
    """As many steps of as many pairs: DPO, or without its settings a reward model."""
    return replace(
        make_spec(inputs),
        method="dpo" if dpo else "reward",
        dpo=dpo,
        training_file=described(inputs, inputs / "files" / "preferred.jsonl"),
        validation_file=described(inputs, inputs / "files" / "preferred-valid.jsonl"),
    )


def by_grades(inputs: Path, algorithm: str, **settings: Any) -> RunSpec:  # noqa: ANN401
    """Eight prompts a step, four answers to each, graded by the share of one letter in them."""
    return replace(
        make_spec(inputs),
        method="reinforcement",
        reinforcement=replace(GRADED, algorithm=algorithm, **settings),
        training_file=described(inputs, inputs / "files" / "prompts.jsonl"),
        validation_file=described(inputs, inputs / "files" / "prompts-valid.jsonl"),
    )


def prepare(
    root: Path,
    spec: RunSpec,
    inputs: Path,
    *,
    world: int = RANKS,
    resume: Outcome | None = None,
    rung: Rung | None = None,
) -> RunDir:
    """Prepare a RunDir like the supervisor does, with the checkpoint of ``resume`` if given."""
    rundir = RunDir(root)
    root.mkdir(parents=True)
    (root / "inputs").symlink_to(inputs.resolve())
    rundir.run_spec.write_text(spec.to_json())
    rundir.generation.write_text(replace(_generation(spec, world), rung=rung).to_json())
    if resume is not None:
        place_checkpoint(resume.rundir.save_folder(resume.checkpoint.path), rundir.checkpoint)
    rundir.ready.touch()
    return rundir


def place_checkpoint(saved: Path, folder: Path) -> None:
    """Turn an outbox folder into a checkpoint to load, manifest and all."""
    shutil.copytree(saved, folder)
    records = [_record(p) for p in sorted(saved.glob("rank-?????.json"))]
    entries = [
        FileEntry(name=f.name, size=f.size, etag="", crc64nvme=f.crc64nvme)
        for record in records
        for f in record.files
    ]
    manifest = Manifest(
        step=records[0].step,
        consumed_samples=records[0].consumed_samples,
        world_size=records[0].world_size,
        generation=records[0].generation,
        kind=records[0].kind,
        files=tuple(entries),
        run_spec_sha256=SPEC_SHA256,
        saved_at=records[0].saved_at,
    )
    (folder / MANIFEST).write_text(manifest.to_json())


def run_world(
    rundir: RunDir,
    *,
    world: int = RANKS,
    stop_at: int | None = None,
    by_signal: bool = False,
    program: str = TRAINER,
    real: bool = False,
) -> Outcome:
    """Run a world to its end; with ``stop_at``, ask it to stop once that step is finished.

    With ``real`` torchrun starts the ranks. Its exit status is not looked at: it is 1 after a
    signal, however well all went.
    """
    start = start_torchrun if real else start_world
    process = start(rundir, world=world, program=program)
    try:
        if stop_at is not None:
            wait_for_step(rundir, stop_at, process)
            process.terminate() if by_signal else rundir.stop.touch()
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        kill_world(process)
    assert all(rundir.result(rank).exists() for rank in range(world)), output
    return outcome(rundir, world)


def start_world(rundir: RunDir, *, world: int = RANKS, program: str = TRAINER) -> World:
    """Start ranks that need not import torch first; see `tests/system/exactness/preloaded.py`.

    With GPUs torchrun starts them: no process may fork that has seen one.
    """
    if ACCELERATOR != "cpu":
        return start_torchrun(rundir, world=world, program=program)
    printed = rundir.root / "printed"
    return preloaded.start(program, rundir.root, printed, world=world, port=ports.free())


def start_torchrun(
    rundir: RunDir, *, world: int = RANKS, program: str = TRAINER, cwd: Path = ROOT
) -> World:
    """Start torchrun in a session of its own; ``cwd`` holds the trainer's source."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    options = ["--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={ports.free()}"]
    return subprocess.Popen(
        [*torchrun, *options, "-m", program, str(rundir.root)],
        cwd=cwd,
        env=os.environ  # noqa: TID251 - handed on as a whole
        | {"REKINDLE_ACCELERATOR": ACCELERATOR, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for_step(rundir: RunDir, step: int, process: World) -> None:
    """Return once the progress file has come to ``step``."""
    wait_until(lambda: _progress(rundir) >= step, process)


def wait_until(condition: Callable[[], bool], process: World) -> None:
    """Return once ``condition`` holds; the process must not have ended before."""
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert process.poll() is None, f"ended before its time: {process.communicate()[0]}"
        assert time.monotonic() < give_up, "waited in vain"
        POLL.wait(0.002)


def kill_world(process: World) -> None:
    """SIGKILL torchrun, or what stands for it, and the ranks in their own process groups."""
    if process.poll() is None:
        for pid in [*children(process.pid), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def outcome(rundir: RunDir, world: int) -> Outcome:
    """Read what a world left behind; all ranks must have ended alike."""
    results = {RankResult.from_json(rundir.result(r).read_bytes()) for r in range(world)}
    assert len(results) == 1, results
    (result,) = results
    return Outcome(result.how, result.step, read_metrics(rundir), read_saves(rundir), rundir)


def read_metrics(rundir: RunDir) -> dict[int, StepMetrics]:
    """Return the latest metrics of every step."""
    lines = rundir.metrics.read_text().splitlines() if rundir.metrics.exists() else []
    return {m.step: m for m in map(StepMetrics.from_json, lines)}


def read_saves(rundir: RunDir) -> tuple[RankSave, ...]:
    """Return the saves of which every writer has left its record."""
    saves = []
    for folder in sorted(rundir.outbox.iterdir()) if rundir.outbox.exists() else []:
        records = [_record(p) for p in sorted(folder.glob("rank-?????.json"))]
        if records and len(records) == records[0].writers:
            saves.append(records[0])
    return tuple(saves)


def _record(path: Path) -> RankSave:
    return RankSave.from_json(path.read_bytes())


def _progress(rundir: RunDir) -> int:
    return int(rundir.progress.read_text()) if rundir.progress.exists() else 0


def children(pid: int) -> list[int]:
    """Return the processes that this one has started: the ranks of torchrun."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def described(inputs: Path, file: Path) -> InputFile:
    """Return a file of the inputs as a run spec names it."""
    data = file.read_bytes()
    path = str(file.relative_to(inputs))
    return InputFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _generation(spec: RunSpec, world: int) -> Generation:
    node = Member(node_id="node-1", vm_id="vm-1", address="127.0.0.1", node_rank=0)
    return Generation(
        number=1,
        job_id=spec.job_id,
        attempt_id="attempt-1",
        members=(node,),
        processes_per_node=world,
        master_address="127.0.0.1",
        master_port=0,
        checkpoint=None,
        run_spec_sha256=SPEC_SHA256,
    )
