"""`python -m trainer.process.cpu_speed` prints the speed of a training process on this computer.

Floating-point operations per second of one thread in fp32, the default precision on CPUs. Plans of
a local stack rest on it (REKINDLE_CPU_FLOPS).
"""

import sys
import time

import torch

SECONDS = 0.3
ROWS, INNER, COLUMNS = 512, 576, 1536  # of SmolLM2-135M's largest layers
# Share of the speed of matrix products that a step reaches: 0.3 to 0.55 in five jobs of
# SmolLM2-135M on 2 cores (bf16, AMX). One process alone reaches 0.6 to 0.7, in bf16 and in fp32.
STEP_SHARE = 0.4


def measure_cpu_flops() -> float:
    """Return the operations per second of a training step, by CPU time."""
    torch.set_num_threads(1)
    a = torch.ones(ROWS, INNER, dtype=torch.float32)
    b = torch.ones(INNER, COLUMNS, dtype=torch.float32)
    a @ b  # the first product prepares kernels
    products = 0
    start = time.process_time()
    while (spent := time.process_time() - start) < SECONDS:
        a @ b
        products += 1
    return STEP_SHARE * products * 2 * ROWS * INNER * COLUMNS / spent


if __name__ == "__main__":
    sys.stdout.write(f"{measure_cpu_flops():.3g}\n")
