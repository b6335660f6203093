"""A spike is a loss far above the median of those before it, for some steps in a row."""

from dataclasses import replace

import pytest

from tests.nodes.scripted_node import metrics
from trainer.contract import SpikeGuard
from trainer.engine.loss_spikes import LossHistory, LossSpikeError, record_loss, require_no_spike

GUARD = SpikeGuard(factor=3.0, steps=2, window=12)
CALM = [2.0, 2.2, 1.8] * 4
METRICS = replace(metrics(9, loss=7.0), spike=3.5)


def spikes_of(losses: list[float], history: LossHistory | None = None) -> list[float | None]:
    """Return the spike at each loss; None where there is none."""
    spikes = []
    for loss in losses:
        history, spike = record_loss(GUARD, history, loss)
        spikes.append(spike)
    return spikes


def test_a_loss_is_a_spike_once_it_was_too_high_for_as_many_steps_as_asked() -> None:
    assert spikes_of([*CALM, 7.0, 8.0, 2.0]) == [None] * 13 + [4.0, None]


def test_one_bad_step_is_no_spike_and_neither_is_any_before_enough_is_known() -> None:
    assert set(spikes_of([*CALM, 7.0, 2.0, 7.0, 2.0])) == {None}
    assert set(spikes_of([1.0, 9.0, 9.0, 9.0])) == {None}


def test_a_run_that_goes_on_from_what_was_seen_says_the_same() -> None:
    history = None
    for loss in [*CALM, 7.0]:
        history, _ = record_loss(GUARD, history, loss)
    assert history is not None

    assert (
        spikes_of([8.0, 9.0], LossHistory.from_json(history.to_json()))
        == spikes_of([*CALM, 7.0, 8.0, 9.0])[-2:]
    )
    assert spikes_of([8.0]) == [None]  # it forgot, and says nothing


def test_only_so_many_losses_are_remembered() -> None:
    history, _ = record_loss(GUARD, LossHistory(losses=tuple(map(float, range(12)))), 50.0)

    assert history is not None
    assert history.losses == (*map(float, range(1, 12)), 50.0)


def test_without_a_guard_nothing_is_remembered() -> None:
    assert record_loss(None, None, 1.0) == (None, None)


def test_a_spike_ends_the_run_only_where_that_is_asked_for() -> None:
    require_no_spike(GUARD, METRICS)
    require_no_spike(replace(GUARD, on_spike="stop"), replace(METRICS, spike=None))
    with pytest.raises(
        LossSpikeError, match=r"step 9 is 7, 3\.5 times the median .* lower the learning"
    ):
        require_no_spike(replace(GUARD, on_spike="stop"), METRICS)
