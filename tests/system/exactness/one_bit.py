"""Measure how far one bit carries, beside a change of the world size.

A run of 400 steps at a high learning rate, resumed after about ten: as it was, with the last bit of
one weight turned over, and on two ranks instead of one. A line for each of some steps: how far the
losses of the second and of the third are from the first one's. It explains what
`tests/system/exactness/matrix.py` cannot promise of long runs; nothing here fails.
"""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.system.exactness.matrix import apart
from tests.system.exactness.worlds import (
    Outcome,
    build_inputs,
    make_spec,
    prepare,
    run_world,
    without_dropout,
)
from trainer.contract import RunSpec

STEPS, STOP, SHOWN = 400, 10, 40


def long_spec(inputs: Path) -> RunSpec:
    """Return a spec that trains 40 rows 80 times, so that the loss falls to a thousandth."""
    return replace(
        make_spec(inputs),
        total_steps=STEPS,
        precision="fp32",
        learning_rate=1e-3,
        warmup_steps=12,
        eval_steps=0,
        validation_file=None,
    )


def turn_a_bit(checkpoint: Path) -> None:
    """Flip the lowest bit of the first element of a master weight."""
    file = checkpoint / "rank-00000.safetensors"
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    key = next(k for k in header if "up_proj" in k and k.endswith("|master"))
    data[8 + length + header[key]["data_offsets"][0]] ^= 1
    file.write_bytes(data)


def main() -> None:
    """Run it four times, and print."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        inputs = without_dropout(build_inputs(root / "inputs"), root / "calm")
        spec = long_spec(inputs)
        first = run_world(prepare(root / "first", spec, inputs, world=1), world=1, stop_at=STOP)

        def resumed(name: str, *, world: int = 1, bit: bool = False) -> Outcome:
            rundir = prepare(root / name, spec, inputs, world=world, resume=first)
            if bit:
                turn_a_bit(rundir.checkpoint)
            return run_world(rundir, world=world)

        same, bit, two = resumed("same"), resumed("bit", bit=True), resumed("two", world=2)
        for step in range(SHOWN, STEPS + 1, SHOWN):
            deviations = {"bit": apart(bit.losses[step], same.losses[step])}
            deviations["world"] = apart(two.losses[step], same.losses[step])
            result = {"step": step, "loss": same.losses[step], **deviations}
            print(json.dumps(result), flush=True)  # noqa: T201 - its result


if __name__ == "__main__":
    main()
