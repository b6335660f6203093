"""How fast this computer trains, as plans of the local stack have it."""

import time

from trainer.process.cpu_speed import measure_cpu_flops


def test_the_speed_of_this_computer_is_measured_in_two_seconds() -> None:
    began = time.process_time()

    flops = measure_cpu_flops()

    assert 1e8 < flops < 1e13  # of one thread
    assert time.process_time() - began < 2
