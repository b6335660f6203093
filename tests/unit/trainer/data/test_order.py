"""Which sample is trained when, on which rank."""

from hypothesis import given
from hypothesis import strategies as st

from trainer.contract import micro_steps
from trainer.data.order import micro_batch_samples, shuffled_row

WORLDS = st.integers(1, 7)


@given(WORLDS, st.integers(1, 4), st.integers(1, 40), st.integers(0, 500))
def test_every_world_trains_exactly_the_same_samples_in_a_step(
    world: int, micro: int, batch: int, consumed: int
) -> None:
    ranks = [micro_batch_samples(consumed, batch, micro, world, rank) for rank in range(world)]

    seen = sorted(c for rank in ranks for step in rank for c in step)
    assert seen == list(range(consumed, consumed + batch))


@given(WORLDS, st.integers(1, 4), st.integers(1, 40))
def test_every_rank_runs_as_many_micro_steps_as_the_others(
    world: int, micro: int, batch: int
) -> None:
    ranks = [micro_batch_samples(0, batch, micro, world, rank) for rank in range(world)]

    assert {len(rank) for rank in ranks} == {micro_steps(batch, micro, world)}
    assert all(len(step) <= micro for rank in ranks for step in rank)


@given(st.integers(0, 2**31), st.integers(1, 200), st.integers(0, 5))
def test_an_epoch_goes_once_through_all_rows(seed: int, rows: int, epoch: int) -> None:
    order = [shuffled_row(seed, rows, cursor) for cursor in range(epoch * rows, (epoch + 1) * rows)]

    assert sorted(order) == list(range(rows))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first = [shuffled_row(1, 50, c) for c in range(50)]

    assert [shuffled_row(1, 50, c) for c in range(50, 100)] != first
    assert [shuffled_row(2, 50, c) for c in range(50)] != first


def test_the_order_is_the_one_of_yesterday() -> None:
    assert [shuffled_row(7, 10, c) for c in range(12)] == [8, 4, 1, 6, 3, 2, 7, 5, 9, 0, 3, 9]
