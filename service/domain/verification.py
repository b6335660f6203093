"""How long the result of a job is verified: a fresh process loads it, and the base model, again.

The trainer's side: `trainer/verify`. What was measured: docs/adr/0054-the-result-is-verified.md.
"""

from service.domain.architecture import Architecture
from service.domain.recipe import Training

START_SECONDS = 10.0  # of a process that imports torch and transformers
READ_BYTES = 1e9  # a second, of weights from a disk that has just been written, or its cache


def verify_seconds(training: Training, arch: Architecture) -> float:
    """Seconds after the last step; 0: the result is not verified.

    A few thousand tokens through the model take less than the weights' way there.
    """
    if not training.verify:
        return 0.0
    width = 4 if training.precision == "fp32" else 2
    loads = 3 if training.is_quantized else 2  # the export, the base model, and that in 4 bits
    return START_SECONDS + loads * width * arch.parameters / READ_BYTES
