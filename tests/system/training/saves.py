"""Saves of real worlds for the tests that read them: every ZeRO stage, full and LoRA.

Starting torchrun is most of the cost of a tiny run, so `python -m tests.system.training.saves
ROOT...` under torchrun lets the trainer do several runs one after another in one world. Of each run
the checkpoint after the first step is kept as a copy of a job's container, and the trainer loads it
once more, as a job whose last step that was, to export the model.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench import ports
from tests.system.exactness import worlds
from tests.system.exactness.worlds import LORA, place_checkpoint, prepare, read_metrics, read_saves
from trainer.contract import (
    HEAD,
    MANIFEST,
    RUN_SPEC,
    Committed,
    FileEntry,
    Generation,
    Head,
    Manifest,
    RunSpec,
)
from trainer.rundir import RankSave, RunDir

EXPORT = "-export"
STEPS = 3


@dataclass(frozen=True)
class Saved:
    """One run, and what it left."""

    container: Path  # laid out as a job's container, with the checkpoint after step 1
    spec: RunSpec
    losses: dict[int, float]  # of all steps, by step
    model: Path  # the trainer's own export at step 1
    parameters_sha256: str  # as that export has it

    @property
    def checkpoint(self) -> Path:
        """The committed checkpoint's folder."""
        head = Head.from_json((self.container / HEAD).read_bytes())
        assert head.newest is not None
        return self.container / head.newest.path


def cases(spec: RunSpec, reward: RunSpec) -> dict[str, RunSpec]:
    """Return the run specs by name; ZeRO stage 1 uses fp32 because bf16 would run as stage 2."""
    short, paired = (
        replace(s, total_steps=STEPS, checkpoint_seconds=0.0, validation_file=None)
        for s in (spec, reward)
    )
    stages = {1: "fp32", 2: "bf16", 3: "bf16"}
    calm = replace(LORA, dropout=0.0)
    specs = {
        f"{'lora' if lora else 'full'}-zero{stage}": replace(
            short, lora=lora, zero_stage=stage, precision=precision
        )
        for stage, precision in stages.items()
        for lora in (None, calm)
    }
    return specs | {"reward-full": paired, "reward-lora": replace(paired, lora=calm)}


def build_calm_inputs(folder: Path) -> Path:
    """Build the tiny model without dropout, so that lost random states make no difference."""
    worlds.drop_dropout(worlds.build_inputs(folder) / "models" / "tiny")
    return folder


def make(root: Path, inputs: Path, world: int, names: Sequence[str] = ()) -> dict[str, Saved]:
    """Run the cases of these names, or all, in one world of this size."""
    all_specs = cases(worlds.make_spec(inputs), worlds.by_preferences(inputs, dpo=None))
    specs = {name: all_specs[name] for name in names or all_specs}
    for name, spec in specs.items():
        _prepare(root / name, spec, inputs, world)
        _prepare(root / f"{name}{EXPORT}", replace(spec, total_steps=1), inputs, world)
    torchrun(world, "tests.system.training.saves", *(str(root / name) for name in specs))
    return {name: _saved(root / name, spec) for name, spec in specs.items()}


def torchrun(world: int, module: str, *arguments: str) -> str:
    """Run a program in a world of its own, and return what it printed."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    options = ["--nnodes=1", "--master-addr=127.0.0.1"]
    port = f"--master-port={ports.free()}"
    process = subprocess.run(
        [*command, *options, port, "-m", module, *arguments],
        env=os.environ  # noqa: TID251 - handed on as a whole
        | {"REKINDLE_ACCELERATOR": "cpu", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def _prepare(root: Path, spec: RunSpec, inputs: Path, world: int) -> None:
    rundir = prepare(root, spec, inputs, world=world)
    tokens = inputs.with_name("tokens")
    tokens.mkdir(exist_ok=True)
    rundir.cache.symlink_to(tokens)  # tokenized once: no run has a child that does it
    row = Generation.from_json(rundir.generation.read_bytes())
    digest = hashlib.sha256(rundir.run_spec.read_bytes()).hexdigest()
    rundir.generation.write_text(replace(row, run_spec_sha256=_first(root, digest)).to_json())


def _first(root: Path, digest: str) -> str:
    """Return the digest of the job's run spec, also for the run that only exports its model."""
    if not root.name.endswith(EXPORT):
        return digest
    first = root.with_name(root.name.removesuffix(EXPORT)) / "run-spec.json"
    return hashlib.sha256(first.read_bytes()).hexdigest()


def _saved(root: Path, spec: RunSpec) -> Saved:
    rundir, export = RunDir(root), RunDir(root.with_name(root.name + EXPORT))
    (final,) = read_saves(export)
    return Saved(
        container=_commit(rundir, root / "container"),
        spec=spec,
        losses={step: m.loss for step, m in read_metrics(rundir).items()},
        model=export.save_folder(final.path),
        parameters_sha256=final.parameters_sha256,
    )


def _first_save(rundir: RunDir) -> RankSave:
    return min(read_saves(rundir), key=lambda save: save.step)


def _commit(rundir: RunDir, container: Path) -> Path:
    """Lay the first save out as supervisors would have left it in Blob."""
    save, spec = _first_save(rundir), rundir.run_spec.read_bytes()
    folder, outbox = container / save.path, rundir.save_folder(save.path)
    shutil.copytree(outbox, folder)
    records = [RankSave.from_json(p.read_bytes()) for p in sorted(outbox.glob("rank-?????.json"))]
    files = [
        FileEntry(name=f.name, size=f.size, etag="", crc64nvme=f.crc64nvme)
        for record in records
        for f in record.files
    ]
    summary = {"step": save.step, "consumed_samples": save.consumed_samples, "kind": save.kind}
    summary |= {"world_size": save.world_size, "generation": save.generation}
    digest = hashlib.sha256(spec).hexdigest()
    manifest = Manifest.from_dict(
        summary
        | {"files": [f.to_plain() for f in files], "run_spec_sha256": digest}
        | {"saved_at": save.saved_at}
    )
    (folder / MANIFEST).write_text(manifest.to_json())
    entry = Committed.from_dict(
        summary
        | {"path": save.path, "size": manifest.size, "committed_at": time.time()}
        | {"manifest_sha256": hashlib.sha256(manifest.to_json().encode()).hexdigest()}
    )
    (container / RUN_SPEC).write_bytes(spec)
    head = Head(generation=save.generation, checkpoints=(entry,))
    (container / HEAD).write_text(head.to_json())
    return container


def _runs(roots: list[str]) -> Iterator[RunDir]:
    """Each run and its export; between them rank 0 puts the checkpoint where that looks."""
    import torch.distributed as dist  # noqa: PLC0415 - only in the world itself

    for root in roots:
        rundir, export = RunDir(Path(root)), RunDir(Path(root + EXPORT))
        yield rundir
        if dist.get_rank() == 0:
            save = _first_save(rundir)
            place_checkpoint(rundir.save_folder(save.path), export.checkpoint)
            manifest = Manifest.from_json((export.checkpoint / MANIFEST).read_bytes())
            row = Generation.from_json(export.generation.read_bytes())
            manifest = replace(manifest, run_spec_sha256=row.run_spec_sha256)
            (export.checkpoint / MANIFEST).write_text(manifest.to_json())
        dist.barrier()
        yield export


def _tokenize(rundir: RunDir) -> None:
    from trainer.data import token_cache, tokenizing, tokens  # noqa: PLC0415
    from trainer.model.tokenizer import base_folder, load_tokenizer  # noqa: PLC0415

    spec = RunSpec.from_json(rundir.run_spec.read_bytes())
    tokenizer = load_tokenizer(base_folder(rundir, spec.base_model))
    for file in tokenizing.missing_token_files(rundir, spec):
        path = rundir.cache / token_cache.tokens_name(spec, file)
        source = tokens.open_tokens(path, rundir.input(file.path), tokenizer, spec)
        tokenizing.write_tokens(source, path)


def main() -> None:
    """Be one rank of the world that does all runs."""
    import torch.distributed as dist  # noqa: PLC0415 - only in the world itself

    from trainer import train  # noqa: PLC0415 - it changes the process, and is slow
    from trainer.process.journal import Journal  # noqa: PLC0415

    roots = sys.argv[1:]
    train._prepare()
    first = train._join(RunDir(Path(roots[0])))
    if first.rank == 0:
        for root in roots:
            _tokenize(RunDir(Path(root)))
    dist.barrier()
    for rundir in _runs(roots):
        row = Generation.from_json(rundir.generation.read_bytes())
        identity = replace(first, run_spec_sha256=row.run_spec_sha256)
        train._run(rundir, identity, Journal(rundir, identity))
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
