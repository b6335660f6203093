"""Options that speed up steps on GPUs: ZeRO++, Liger's kernels, torch's compiler.

ZeRO++ changes what is sent, so it is refused where it is not possible. The others change how the
same is computed: where they cannot be used, the run continues without them and warns.
"""

from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import Any

from trainer.contract import RunSpec
from trainer.process.non_retryable import NonRetryableError

PLUS_PLUS = ("hpz", "qwz", "qgz")


def require_zero_plus_plus(spec: RunSpec, device: str) -> None:
    """Raise NonRetryableError for ZeRO++ options that are impossible on this device."""
    options = spec.zero_plus_plus
    if unknown := [name for name in options if name not in PLUS_PLUS]:
        raise NonRetryableError(
            f"zero_plus_plus {unknown[0]!r} is not known; use {', '.join(PLUS_PLUS)}"
        )
    if options and spec.zero_stage != 3:
        raise NonRetryableError(
            "zero_plus_plus is a part of ZeRO stage 3: ask for it, or leave it out"
        )
    if options and device != "cuda":
        raise NonRetryableError("zero_plus_plus has kernels for GPUs only: leave it out on a CPU")


def unused_speedups(
    spec: RunSpec, device: str, *, has_liger: bool | None = None, has_compiler: bool | None = None
) -> tuple[str, ...]:
    """Return a sentence for each requested option that cannot be used here."""
    has_liger = find_spec("liger_kernel") is not None if has_liger is None else has_liger
    if has_compiler is None:  # where Triton looks; the trainer's image has none
        has_compiler = any(map(which, ("cc", "gcc", "clang")))
    sentences = []
    if spec.fused_kernels and not (device == "cuda" and has_liger):
        why = "liger-kernel is not installed" if device == "cuda" else "they are for GPUs"
        sentences.append(f"fused_kernels were not used: {why}.")
    if spec.compiled and device != "cuda":
        sentences.append("compiled was not used: on a CPU nothing is compiled.")
    elif spec.compiled and (spec.zero_stage == 3 or spec.packing):
        sentences.append("compiled was not used: not with ZeRO stage 3, nor with packing.")
    elif spec.compiled and not has_compiler:
        sentences.append("compiled was not used: this image has no C compiler, which Triton needs.")
    return tuple(sentences)


def apply_speedups(model: Any, spec: RunSpec, device: str) -> dict[str, str]:  # noqa: ANN401 - untyped here
    """Apply the options before the engine takes the model; return the unused ones and why."""
    names = {sentence.split()[0]: sentence for sentence in unused_speedups(spec, device)}
    if spec.fused_kernels and "fused_kernels" not in names:
        liger = import_module("liger_kernel.transformers")
        liger._apply_liger_kernel_to_instance(model=model)  # noqa: SLF001 - it has no other name
    if spec.compiled and "compiled" not in names:
        model.compile(dynamic=True)  # in place: the weights keep their names
    return names
