"""Entry point of one trainer process: `torchrun ... -m trainer.train RUNDIR`.

Reads REKINDLE_ACCELERATOR ("cpu" or "cuda") and torchrun's own variables. All other input and
output is in RUNDIR, see `trainer/rundir.py`.
"""

import argparse
import gc
import logging
import os
import secrets
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

FIRST_LINE_AT = time.time()
gc.disable()  # collections would take a quarter of the CPU time of the imports

ACCELERATOR = os.environ.get("REKINDLE_ACCELERATOR", "cpu")
os.environ["DS_ACCELERATOR"] = ACCELERATOR  # DeepSpeed reads it when it is imported
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # a deterministic cuBLAS

import deepspeed  # noqa: E402
import deepspeed.ops  # noqa: E402
import psutil  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from deepspeed.runtime import compiler  # noqa: E402
from transformers.utils.logging import disable_progress_bar  # noqa: E402

from trainer.checkpoint import rng_state  # noqa: E402
from trainer.checkpoint.loader import load_checkpoint, open_checkpoint  # noqa: E402
from trainer.checkpoint.saver import Saver  # noqa: E402
from trainer.contract import Generation, RunSpec  # noqa: E402
from trainer.data import tokenizing  # noqa: E402
from trainer.data.file_batches import build_file_source  # noqa: E402
from trainer.engine import ema, loss_spikes, speedups  # noqa: E402
from trainer.engine.deepspeed_engine import build_config, build_engine  # noqa: E402
from trainer.engine.utilization import UtilizationMeter  # noqa: E402
from trainer.export.finalize import hand_over_model  # noqa: E402
from trainer.loop import LoopContext, train  # noqa: E402
from trainer.methods.descriptor import (  # noqa: E402
    MethodInputs,
    make_method,
    require_valid_method,
)
from trainer.model.base_model import load_model  # noqa: E402
from trainer.model.tokenizer import base_folder, load_tokenizer  # noqa: E402
from trainer.process import bandwidth_check, non_retryable, out_of_memory  # noqa: E402
from trainer.process.journal import Journal  # noqa: E402
from trainer.process.sync_flags import FlagSync, long_timeout_group  # noqa: E402
from trainer.process.watchdog import Watchdog  # noqa: E402
from trainer.rundir import RankResult, RunDir, write_atomically  # noqa: E402
from trainer.state import RankIdentity, TrainingState  # noqa: E402

gc.freeze()  # modules stay: no later collection needs to look at them
gc.enable()

COLLECTIVE_TIMEOUT = timedelta(minutes=10)  # a peer may vanish without notice
READY_POLL = 0.02  # seconds
log = logging.getLogger("trainer")


def main() -> None:
    """Run one rank from start to result."""
    parser = argparse.ArgumentParser(prog="python -m trainer.train", description=__doc__)
    parser.add_argument("rundir", type=Path)
    rundir = RunDir(parser.parse_args().rundir)
    imported_at = time.time()
    _prepare()
    identity = _join(rundir)
    joined_at = time.time()
    journal = Journal(rundir, identity)
    _require_speed(rundir, journal)
    launched_at = psutil.Process(os.getppid()).create_time()  # torchrun's
    journal.span("start_trainer", launched_at, FIRST_LINE_AT)
    journal.span("load_imports", FIRST_LINE_AT, imported_at)
    journal.span("load_world", imported_at, joined_at)
    _wait_for_path(rundir.ready)
    journal.span("load_wait", joined_at, time.time())
    with non_retryable.record_non_retryable(rundir, identity.rank):
        result = _run(rundir, identity, journal)
    write_atomically(rundir.result(identity.rank), result.to_json())
    dist.barrier()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)  # tearing the process groups down crashes now and then


def _prepare() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(message)s")
    log.setLevel(logging.INFO if os.environ["RANK"] == "0" else logging.WARNING)
    warnings.simplefilter("ignore", FutureWarning)  # torch's, about what DeepSpeed calls
    disable_progress_bar()
    if ACCELERATOR == "cuda":
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # costs seconds a step
    else:
        torch.set_num_threads(1)
    _skip_compilers()


def _skip_compilers() -> None:
    """Keep DeepSpeed from building or importing compilers that this trainer never uses."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # g++, when first used
    compiler.compile = lambda: lambda function: function  # Muon's decorators: 1.3 s of imports


def _join(rundir: RunDir) -> RankIdentity:
    """Join the world of this generation."""
    generation = Generation.from_json(rundir.generation.read_bytes())
    backend = "nccl" if ACCELERATOR == "cuda" else "gloo"
    if ACCELERATOR == "cuda":
        torch.cuda.set_device(_device())
    deepspeed.init_distributed(backend, timeout=COLLECTIVE_TIMEOUT, verbose=False)
    if dist.get_world_size() != generation.world_size:
        raise ValueError(
            f"torchrun started {dist.get_world_size()} processes, "
            f"generation {generation.number} has {generation.world_size}"
        )
    nonce = torch.tensor(secrets.randbits(32), device=_device())
    dist.broadcast(nonce, src=0)
    return RankIdentity(
        rank=dist.get_rank(),
        local_rank=int(os.environ["LOCAL_RANK"]),
        world_size=dist.get_world_size(),
        generation=generation.number,
        run_spec_sha256=generation.run_spec_sha256,
        nonce=f"{int(nonce):08x}",
    )


def _require_speed(rundir: RunDir, journal: Journal) -> None:
    """Check the bandwidth that the supervisor expects of the VM size."""
    generation = Generation.from_json(rundir.generation.read_bytes())
    inside, between = (os.environ.get(f"REKINDLE_SPEED_{w}", "0") for w in ("INSIDE", "BETWEEN"))
    expected = bandwidth_check.ExpectedBandwidth(inside=float(inside), between=float(between))
    if warning := bandwidth_check.require_bandwidth(rundir, generation, _device(), expected):
        journal.warn("slow_network", warning)


def _wait_for_path(path: Path) -> None:
    """Wait until the supervisor creates the path; if it fails, it kills this process."""
    while not path.exists():
        time.sleep(READY_POLL)


def _run(rundir: RunDir, identity: RankIdentity, journal: Journal) -> RankResult:
    generation = Generation.from_json(rundir.generation.read_bytes())
    spec = generation.spec_of(RunSpec.from_json(rundir.run_spec.read_bytes()))
    require_valid_method(spec)
    loss_spikes.require_valid_guard(spec)
    watchdog = Watchdog(time.monotonic)
    parts, state = _build(spec, rundir, identity, journal, watchdog)
    patient = long_timeout_group()
    dist.barrier()
    journal.span("load", FIRST_LINE_AT, time.time())
    if identity.rank == 0 and spec.reinforcement is None:
        tokenizing.start_tokenizing(rundir, spec)
    with out_of_memory.record_out_of_memory(rundir, identity, spec, ACCELERATOR):
        state, finished = train(parts, state)
    watchdog.expect_long()
    parts.saver.wait()
    if finished:
        hand_over_model(parts, rundir, state, patient, watchdog)
    dist.barrier(patient)  # a large model is written for longer than a collective may take
    return RankResult(how="finished" if finished else "stopped", step=state.step)


def _build(
    spec: RunSpec, rundir: RunDir, identity: RankIdentity, journal: Journal, watchdog: Watchdog
) -> tuple[LoopContext, TrainingState]:
    """Build everything that training needs; return the state to start from."""
    started_at = time.time()
    base = base_folder(rundir, spec.base_model)
    tokenizer = load_tokenizer(base, spec.method)
    rng_state.seed_rng(spec.seed)  # new adapters are the same on every rank
    config = build_config(spec, identity.world_size)
    model = load_model(base, spec, config, tokenizer.pad_token_id)
    for option, why in speedups.apply_speedups(model, spec, ACCELERATOR).items():
        journal.warn(option, why)
    engine = build_engine(model, spec, config)
    if spec.ema_decay:
        ema.start_average(engine)
    method = make_method(MethodInputs(engine, base, spec, config))
    saver = Saver(engine, rundir, identity)
    flag_sync = FlagSync(rundir, _flag_group(), lambda: saver.busy, watchdog.record_progress)
    journal.span("load_model", started_at, loaded_at := time.time())
    state = _resume(engine, spec, rundir, identity, journal)
    journal.span("load_checkpoint", loaded_at, time.time())
    common = (spec, rundir, identity, engine, tokenizer, flag_sync)
    if spec.reinforcement is None:
        source, evaluation = build_file_source(*common)
    else:
        from trainer.rollout.rollouts import build_rollout_source  # noqa: PLC0415 - others save its imports

        source, evaluation = build_rollout_source(*common, config, base)
    parts = LoopContext(
        spec=spec,
        identity=identity,
        engine=engine,
        method=method,
        source=source,
        evaluation=evaluation,
        saver=saver,
        flag_sync=flag_sync,
        journal=journal,
        meter=UtilizationMeter(engine, spec, identity),
        now=_monotonic_time_of_day(),
    )
    return parts, state


def _resume(
    engine: Any,  # noqa: ANN401
    spec: RunSpec,
    rundir: RunDir,
    identity: RankIdentity,
    journal: Journal,
) -> TrainingState:
    generation = Generation.from_json(rundir.generation.read_bytes())
    if generation.checkpoint is None and not rundir.checkpoint.exists():
        rng_state.seed_rng(spec.seed, 0, identity.rank)
        return TrainingState()
    _wait_for_path(rundir.checkpoint)
    ranges_path = rundir.wanted_ranges(identity.rank)
    # A second download may be intact.
    with non_retryable.treat_as_retryable():
        state = load_checkpoint(
            engine,
            open_checkpoint(rundir.checkpoint, identity.run_spec_sha256),
            spec.seed,
            identity,
            lambda ranges: write_atomically(ranges_path, ranges.to_json()),
            all_waiting=generation.rung is not None,
        )
    journal.progress(state.step)
    log.info("resuming after step %d", state.step)
    return state


def _flag_group() -> Any:  # noqa: ANN401
    """Return a CPU group for the flags, so that syncing them does not wait for GPUs."""
    if ACCELERATOR != "cuda":
        return None
    return dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)


def _monotonic_time_of_day() -> Callable[[], float]:
    """Return a time of day that never jumps, for saves and for timing steps."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


def _device() -> torch.device:
    return torch.device(ACCELERATOR, int(os.environ["LOCAL_RANK"]) if ACCELERATOR == "cuda" else 0)


if __name__ == "__main__":
    main()
