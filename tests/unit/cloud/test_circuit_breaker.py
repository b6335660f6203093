"""When a region that fails is left alone, and for how long."""

from datetime import UTC, datetime, timedelta

from service.domain.cloud.circuit_breaker import FAILURES, Circuit, after_failure

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_region_is_shut_after_some_failures_in_a_row_for_longer_each_time() -> None:
    circuit, pauses = Circuit(), []
    for _ in range(FAILURES + 12):
        circuit = after_failure(circuit, NOW, 0.5)
        pauses.append(circuit.shut_until - NOW if circuit.shut_until else timedelta(0))

    assert pauses[: FAILURES - 1] == [timedelta(0)] * (FAILURES - 1)
    assert pauses[FAILURES - 1] == timedelta(seconds=5)
    assert pauses == sorted(pauses)
    assert pauses[-1] == timedelta(minutes=5)


def test_a_shut_region_is_tried_by_one_when_its_time_is_over() -> None:
    shut = Circuit(failures=FAILURES, shut_until=NOW + MINUTE)

    assert shut.is_shut(NOW)
    assert not shut.is_shut(NOW + MINUTE)
