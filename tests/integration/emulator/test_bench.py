"""The emulator's benchmark with few machines: it returns every measure."""

from pathlib import Path

from bench.emulator import run


def test_every_measure_has_a_value(tmp_path: Path) -> None:
    measures = {measure.name: measure.value for measure in run(tmp_path, machines=120, requests=3)}

    assert set(measures) == {
        *("start", "start_with_120_vms", "memory_at_120_vms", "idle_cpu"),
        *("get_set", "list_instances", "put_set", "scheduled_events"),
        *("get_set_cpu", "list_instances_cpu", "put_set_cpu", "scheduled_events_cpu"),
    }
    assert all(measures[name] for name in ("start", "memory_at_120_vms", "get_set", "put_set"))
