"""Which of two models answers better: counts, and how sure they are."""

import pytest

from trainer.wins import RatedAnswer, compare_answers, summary_text, wilson_interval


def rated_answers(*rewards: float | None) -> list[RatedAnswer]:
    return [RatedAnswer(text=f"{n}: {r}", is_cut=False, reward=r) for n, r in enumerate(rewards)]


@pytest.mark.parametrize(
    ("rate", "count", "low", "high"),
    [  # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29
        (81 / 263, 263, 0.2553, 0.3662),
        (15 / 148, 148, 0.0624, 0.1605),
        (0.0, 20, 0.0, 0.1611),
        (1 / 29, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_wilsons(rate: float, count: int, low: float, high: float) -> None:
    assert wilson_interval(rate, count) == pytest.approx((low, high), abs=5e-5)


def test_of_no_prompts_nothing_is_known() -> None:
    assert wilson_interval(0.5, 0) == (0.0, 1.0)
    comparison = compare_answers([], rated_answers())

    assert (comparison.win_rate, comparison.mean_reward) == (None, (None, None))
    assert "not known: the judge rated no prompt" in summary_text(comparison)
    assert "no difference yet" not in summary_text(comparison)


def test_the_higher_reward_wins_and_the_same_answer_is_a_tie() -> None:
    tied = RatedAnswer(text="4", is_cut=True, reward=1.0)
    other_batch = RatedAnswer(text="4", is_cut=False, reward=1.0000001)

    comparison = compare_answers(
        [*rated_answers(2, 0, 3, None), tied], [*rated_answers(1, 5, 0.5, 2), other_batch]
    )

    assert (comparison.wins, comparison.losses, comparison.ties, comparison.not_rated) == (
        2,
        1,
        1,
        1,
    )
    assert comparison.win_rate == 2.5 / 4
    assert comparison.cut == (1, 0)
    assert comparison.mean_reward[0] == pytest.approx(6 / 4)
    assert "no difference yet" in summary_text(comparison)


def test_a_clear_win_is_not_called_a_draw() -> None:
    comparison = compare_answers(rated_answers(*[1.0] * 50), rated_answers(*[0.0] * 50))

    assert comparison.low > 0.9
    assert "no difference yet" not in summary_text(comparison)
