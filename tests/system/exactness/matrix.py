"""`python -m tests.system.exactness` (`make exactness`): resumed runs are those that never stopped.

Matrices, each over full, LoRA and QLoRA, ZeRO stages, bf16 and fp32; a JSON object for each case:

* every method, and packed, stopped twice and resumed on as many ranks, with dropout: every loss
  and the parameters are equal to the last bit; the same for what saves memory (`savers.py`),
  and for other rows and orders (`learners.py`);
* `alike-`: what only lies elsewhere for a while ends as if it did not;
* `killed-`: told to stop by SIGTERM to one rank at a random instant, then killed while it saves
  (`interrupted.py`): the same;
* `refused-`: what a library cannot do, and with what words the trainer refuses it;
* `forgets-`: a checkpoint that lacks one thing (`forgetting.py`) makes another run;
* supervised and without dropout, stopped four times and resumed on another number of ranks each
  time (`CHAIN`), against one rank that never stopped: the same rows in the same order in every
  step, and every loss within `ROUNDING`;
* `rung-`: the same ranks, but with less at once at each resume (`RUNGS`): the same.

`--keep FILE` notes each case that holds, and leaves out those that it has: a run that was
interrupted goes on where it was. `--only TEXT ...` takes the cases with one of these in their
names, `--jobs N` runs so many side by side, `--list` runs none and tells their names. The last
line says how many there are, and which did not hold.

With REKINDLE_ACCELERATOR=cuda all of it is run on the GPUs of this machine, one rank on each;
`chain-` needs four of them.

`tests/system/exactness/test_exact_resume.py` runs a few of these.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.system.exactness.forgetting import FORGET
from tests.system.exactness.interrupted import interrupt, interrupted
from tests.system.exactness.learners import learners, ordered
from tests.system.exactness.pairings import (
    METHODS,
    OFF_POLICY,
    WHAT,
    by_method,
    impossible,
    matrix,
    pairings,
    refusal,
)
from tests.system.exactness.recorded import PROGRAM, rows_trained
from tests.system.exactness.savers import halved, has_fp16, put_aside, savers
from tests.system.exactness.worlds import (
    ACCELERATOR,
    LORA,
    RANKS,
    Outcome,
    build_inputs,
    by_grades,
    by_preferences,
    make_spec,
    prepare,
    run_world,
    without_dropout,
)
from trainer.contract import Rung, RunSpec, StepMetrics

CHAIN = (1, 2, 4, 3, 1)  # ranks
STOPS = (4, 9, 14, 19)  # the step after which each but the last is asked to stop
STEPS = 24
RUNGS = (  # the first as the spec says; ``micro_batch`` is 2 there
    None,
    Rung(micro_batch=1, gradient_checkpointing=False),
    Rung(micro_batch=1, gradient_checkpointing=True),
)

# How far a step's loss may be from the one of another world size, relative to it. Micro-batches are
# the same on every world, and so are their losses and gradients as long as the weights are. What
# differs is the order in which ranks and micro-steps are summed; on another rung also how far rows
# are padded, and with it the order of sums inside a row.
# fp32: a sum of some thousand terms, each rounded to 2^-24, is off by about 2^-24 x sqrt(1000s), or
# 4e-6; over the steps the weights follow, and Adam's epsilon (1e-8) keeps rounded zeros (1e-10)
# from becoming whole steps.
# bf16: masters and moments are fp32, but gradients go between ranks in bf16, so the masters differ
# in what the weights' rounding to 8 bits may turn over, and activations with them. A loss is the
# mean over hundreds of tokens, so it is off by less than one rounding of a value itself, 2^-8.
ROUNDING = {"fp32": 1e-5, "bf16": 2**-8}


# --- The same world size -----------------------------------------------------------------------


def compare(root: Path, spec: RunSpec, inputs: Path, stops: tuple[int, ...]) -> dict[str, object]:
    """Run once through and once with stops; say whether losses and parameters are equal."""
    uninterrupted = run_world(prepare(root / "whole", spec, inputs))
    losses: dict[int, float] = {}
    last: Outcome | None = None
    for number, stop_at in enumerate((*stops, None)):
        rundir = prepare(root / f"part-{number}", spec, inputs, resume=last)
        last = run_world(rundir, stop_at=stop_at)
        losses |= last.losses
    assert last is not None
    return {
        "losses_equal": losses == uninterrupted.losses,
        "parameters_equal": last.parameters_sha256 == uninterrupted.parameters_sha256 != "",
        "parameters_sha256": uninterrupted.parameters_sha256,
    }


def alike(root: Path, spec: RunSpec, other_spec: RunSpec, inputs: Path) -> dict[str, object]:
    """Run two specs once through, which may differ in where things lie and in nothing else."""
    first = run_world(prepare(root / "one", spec, inputs))
    second = run_world(prepare(root / "two", other_spec, inputs))
    return {
        "losses_equal": first.losses == second.losses,
        "parameters_equal": first.parameters_sha256 == second.parameters_sha256 != "",
    }


def forget(root: Path, spec: RunSpec, inputs: Path, item: str) -> dict[str, object]:
    """Resume without one thing that the checkpoint holds; say whether that made another run."""
    uninterrupted = run_world(prepare(root / "whole", spec, inputs))
    stopped = run_world(prepare(root / "stopped", spec, inputs), stop_at=7)
    rundir = prepare(root / "forgetful", spec, inputs, resume=stopped)
    FORGET[item](rundir.checkpoint)
    forgetful = run_world(rundir)
    return {"another_run": forgetful.parameters_sha256 not in (uninterrupted.parameters_sha256, "")}


# --- Changing world sizes ----------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What one world of a chain did: the steps that it was the last to do, and their rows."""

    ranks: int
    outcome: Outcome
    rows: dict[int, list[int]]  # by samples consumed before the step


def chain_matrix(spec: RunSpec) -> dict[str, RunSpec]:
    """Return run specs that vary what is trained, the sharding ZeRO stage and the precision.

    Dropout is off. Stage 0 is left out: it shards nothing.
    """
    return {
        name: replace(case, total_steps=STEPS, lora=case.lora and replace(LORA, dropout=0.0))
        for name, case in matrix(spec).items()
        if case.zero_stage > 0
    }


def change_worlds(
    root: Path,
    spec: RunSpec,
    inputs: Path,
    chain: Sequence[int] = CHAIN,
    stops: Sequence[int] = STOPS,
) -> dict[str, object]:
    """Run once through on one rank, and once along the chain; say how far apart they are."""
    (twin,) = run_chain(root / "twin", spec, inputs, [1], [])
    parts = list(run_chain(root / "chain", spec, inputs, chain, stops))
    return _compared(twin, parts, spec)


def change_rungs(root: Path, spec: RunSpec, inputs: Path) -> dict[str, object]:
    """Run once through, and once with less at once after each stop."""
    (twin,) = run_chain(root / "twin", spec, inputs, [RANKS], [])
    stops = (3, 7)
    parts = list(run_chain(root / "rungs", spec, inputs, [RANKS] * len(RUNGS), stops, RUNGS))
    return _compared(twin, parts, spec)


def _compared(twin: Part, parts: Sequence[Part], spec: RunSpec) -> dict[str, object]:
    twin_metrics, metrics = twin.outcome.metrics, _metrics(parts)
    deviations = {step: _off(metrics[step].loss, m.loss, spec) for step, m in twin_metrics.items()}
    worst = max(deviations, key=lambda step: deviations[step])
    return {
        "worlds": [[leg.ranks, *_span(leg.outcome)] for leg in parts],
        "steps_equal": sorted(metrics)
        == sorted(twin_metrics)
        == list(range(1, spec.total_steps + 1)),
        "rows_equal": _rows(parts, spec) == _rows([twin], spec),
        "tokens_equal": all(
            metrics[step].tokens == twin_metrics[step].tokens for step in twin_metrics
        ),
        "consumed_equal": all(_counts(leg.outcome, spec) for leg in (*parts, twin)),
        "within": deviations[worst] <= ROUNDING[spec.precision],
        "tolerance": ROUNDING[spec.precision],
        "loss_apart": deviations[worst],
        "at_step": worst,
    }


def run_chain(
    root: Path,
    spec: RunSpec,
    inputs: Path,
    chain: Sequence[int],
    stops: Sequence[int],
    rungs: Sequence[Rung | None] = (),
) -> Iterator[Part]:
    """Each world goes on from the checkpoint of the one before."""
    last: Outcome | None = None
    rungs = rungs or [None] * len(chain)
    for number, (ranks, stop_at, rung) in enumerate(zip(chain, (*stops, None), rungs, strict=True)):
        at = root / f"{number}-on-{ranks}"
        rundir = prepare(at, spec, inputs, world=ranks, resume=last, rung=rung)
        last = run_world(rundir, world=ranks, stop_at=stop_at, program=PROGRAM)
        rows = {} if spec.reinforcement else rows_trained(rundir.root, ranks)
        yield Part(ranks, last, rows)


def apart(value: float, reference: float) -> float:
    """Relative to theirs."""
    return abs(value - reference) / abs(reference)


def _off(loss: float, expected: float, spec: RunSpec) -> float:
    """By how much a loss is off; one made of advantages is about 0, and nothing to divide by."""
    return abs(loss - expected) if spec.reinforcement else apart(loss, expected)


def _metrics(parts: Sequence[Part]) -> dict[int, StepMetrics]:
    return {step: m for leg in parts for step, m in leg.outcome.metrics.items()}


def _rows(parts: Sequence[Part], spec: RunSpec) -> dict[int, list[int]]:
    """Return the rows of every trained step in order, without steps that were only prepared."""
    return {
        step: leg.rows[consumed]
        for leg in parts
        for step in leg.outcome.metrics
        if (consumed := (step - 1) * spec.global_batch) in leg.rows  # else: only evaluated here
    }


def _counts(outcome: Outcome, spec: RunSpec) -> bool:
    """Whether every save says of the samples what its steps have consumed."""
    return all(s.consumed_samples == s.step * spec.global_batch for s in outcome.saves)


def _span(outcome: Outcome) -> tuple[int, int]:
    return min(outcome.metrics), max(outcome.metrics)


Case = Callable[[], dict[str, object]]


def cases(root: Path) -> Iterator[tuple[str, Case]]:
    """All of them by name, ready to run below ``root``."""
    inputs = build_inputs(root / "inputs")
    calm = without_dropout(inputs, root / "calm")
    if ACCELERATOR == "cpu" or max(CHAIN) <= RANKS:
        yield from _of_chains(root, calm)
    for name, spec in narrowed(calm).items():
        yield name, partial(change_rungs, root / name, spec, calm)
    for name, spec in savers(inputs).items():
        yield name, partial(compare, root / name, spec, inputs, stops=(2, 4))
    for name, spec in (learners(inputs) | (halved(inputs) if has_fp16() else {})).items():
        yield name, partial(compare, root / name, spec, inputs, stops=(3, 7))
    for name, spec in put_aside(inputs).items():
        yield name, partial(compare, root / name, spec, inputs, stops=(2, 4))
        plain = replace(spec, rollout_offload=False)
        yield f"alike-{name}", partial(alike, root / f"alike-{name}", spec, plain, inputs)
    for name in () if has_fp16() else halved(inputs):
        yield f"refused-{name}", lambda: {"refused": True, "why": "no fp16 on this processor"}
    for item, spec in _remembered(inputs).items():
        at = root / f"forgets-{item}"
        yield at.name, partial(forget, at, spec, inputs, item)
    for name, spec in interrupted(inputs).items():
        yield name, partial(interrupt, root / name, spec, inputs)
    yield from _of_methods(root, inputs)


def _of_chains(root: Path, calm: Path) -> Iterator[tuple[str, Case]]:
    """On another number of ranks at each resume."""
    for name, spec in chain_matrix(make_spec(calm)).items():
        yield f"chain-{name}", partial(change_worlds, root / f"chain-{name}", spec, calm)
    yield "chain-dpo", partial(change_worlds, root / "chain-dpo", _calm_pairs(calm), calm)
    for name, spec in ordered(calm).items():
        yield name, partial(change_worlds, root / name, spec, calm)


def _of_methods(root: Path, inputs: Path) -> Iterator[tuple[str, Case]]:
    """Every method with everything that can be trained, and what is refused."""
    methods = by_method(inputs)
    for method, chosen in methods.items():
        for name, spec in matrix(chosen).items():
            at = root / f"{method}-{name}"
            yield at.name, partial(compare, at, spec, inputs, stops=(3, 7))
    for method in METHODS:
        short = replace(methods[method], total_steps=6, eval_steps=3)  # 4 bits are slow on a CPU
        for name, spec in matrix(short, ["qlora"]).items():
            at = root / f"{method}-{name}"
            yield at.name, partial(compare, at, spec, inputs, stops=(2, 4))
        for name, spec in pairings(short, list(WHAT)).items():
            if impossible(spec):
                yield f"refused-{method}-{name}", partial(refusal, spec)


def _remembered(inputs: Path) -> dict[str, RunSpec]:
    """Return what a checkpoint must hold, each with a run spec whose training shows it."""
    plain = make_spec(inputs)
    scaled = {"loss_scale": halved(inputs)["halved-full-zero2-sft"]} if has_fp16() else {}
    return scaled | {
        "randomness": plain,
        "data_cursor": plain,
        "moments": plain,
        "average": replace(plain, ema_decay=0.9),
        "penalty": by_grades(inputs, "rloo", kl_target=1.0),
        "answers": by_grades(inputs, "ppo", **OFF_POLICY),
    }


def narrowed(calm: Path) -> dict[str, RunSpec]:
    """Return run specs to resume with less memory; for answers, in the middle of a rollout.

    There is no third rollout: weights that are rounded differently would write its answers.
    """
    spec = replace(make_spec(calm), precision="fp32")
    lora = replace(LORA, dropout=0.0)
    answers = by_grades(calm, "grpo", steps_per_rollout=4)
    return {
        "rung-full-zero2-fp32": spec,
        "rung-full-zero2-bf16": replace(spec, precision="bf16"),
        "rung-lora-zero3-fp32-packed": replace(spec, lora=lora, zero_stage=3, packing=True),
        "rung-grpo-zero2-fp32": replace(answers, precision="fp32", total_steps=8),
    }


def _calm_pairs(inputs: Path) -> RunSpec:
    spec = by_preferences(inputs)
    return replace(spec, total_steps=STEPS, zero_stage=3, precision="fp32", packing=True)


def main() -> None:
    """Run both matrices; exit status 1 when any resume is not what it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.exactness")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    kept_lines = options.keep.read_text() if options.keep and options.keep.exists() else ""
    finished = {json.loads(line)["case"] for line in kept_lines.splitlines()}
    with tempfile.TemporaryDirectory() as folder:
        every = cases(Path(folder))
        chosen = {n: case for n, case in every if any(text in n for text in options.only)}
        if options.list:
            _tell({"cases": len(chosen), "refused": _refused(chosen), "names": list(chosen)})
            return
        remaining = [name for name in chosen if name not in finished]
        with ThreadPoolExecutor(options.jobs) as pool:
            results = pool.map(lambda name: _holds(name, chosen[name], options.keep), remaining)
        failed = [name for name, holds in zip(remaining, results, strict=True) if not holds]
    _tell({"cases": len(chosen), "refused": _refused(chosen), "failed": failed})
    sys.exit(1 if failed else 0)


def _refused(names: Iterable[str]) -> int:
    return sum(name.startswith("refused-") for name in names)


def _tell(result: dict[str, object]) -> None:
    print(json.dumps(result), flush=True)  # noqa: T201 - its result


def _holds(name: str, case: Case, keep: Path | None) -> bool:
    """Run it; tell what was found, and whether everything that is said with yes or no is yes."""
    try:
        result = {"case": name, **case()}
    except Exception as error:  # noqa: BLE001 - the other cases are run all the same
        result = {"case": name, "ran": False, "error": f"{type(error).__name__}: {error}"[-2000:]}
    _tell(result)
    holds = all(value for value in result.values() if isinstance(value, bool))
    if holds and keep:
        with keep.open("a") as lines:
            lines.write(json.dumps(result) + "\n")
    return holds
