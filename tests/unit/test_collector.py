"""Python's collector in a process of the service."""

import gc

from service.main import spare_the_collector


def test_what_a_process_begins_with_is_never_looked_through_again() -> None:
    before = gc.get_threshold()
    try:
        spare_the_collector()

        assert len(gc.get_objects()) < gc.get_freeze_count() / 100
        assert gc.get_threshold() > before
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
