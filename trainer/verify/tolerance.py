"""How far the losses of exported files may be from the trainer's: measured, see adr/0054."""

# Mean absolute difference of the values: nats per token, or units of a reward model's score.
_SAME = {"fp32": 1e-3, "bf16": 5e-3, "fp16": 5e-3}  # the same sums on the same device
_OTHER = {"fp32": 1e-3, "bf16": 1e-1, "fp16": 3e-2}  # another device, or other kernels


def tolerance(precision: str, *, alike: bool) -> float:
    """The largest mean absolute difference that is accepted.

    ``alike``: both compute with the same kernels on the same device.
    """
    return (_SAME if alike else _OTHER)[precision]
