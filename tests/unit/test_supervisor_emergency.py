"""What a machine does with the seconds that Azure leaves it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.supervisor.emergency import (
    COMMIT_SECONDS,
    Choice,
    Outlook,
    decide,
    full_rate,
    seconds_to_save,
    sentence,
)
from trainer.supervisor.tempo import Tempo

GB = 10**9
LORA = Outlook(left=27.0, step=2.0, micro_steps=4, size=2 * GB, pending=0, rate=2.0 * GB)
ORDER = (Choice.RELY, Choice.SAVE_NOW, Choice.FINISH_STEP)
spans = st.floats(min_value=0.01, max_value=1e4)
sizes = st.integers(min_value=0, max_value=10**13)
outlooks = st.builds(
    Outlook,
    left=spans,
    step=spans,
    micro_steps=st.integers(1, 64),
    size=sizes,
    pending=sizes,
    rate=st.floats(min_value=1e3, max_value=1e11),
)


@pytest.mark.parametrize(
    ("outlook", "choice"),
    [
        (LORA, Choice.FINISH_STEP),
        (replace(LORA, step=30.0, micro_steps=16), Choice.SAVE_NOW),
        (replace(LORA, size=98 * GB), Choice.RELY),  # all of a 7B model: never in 30 s
        (replace(LORA, pending=60 * GB), Choice.RELY),
        (replace(LORA, left=2.5), Choice.RELY),
        (replace(LORA, rate=None), Choice.SAVE_NOW),
        (replace(LORA, step=None), Choice.SAVE_NOW),
    ],
)
def test_a_save_is_made_if_it_will_be_whole_in_time(outlook: Outlook, choice: Choice) -> None:
    assert decide(outlook).choice is choice


def test_the_time_for_a_save_is_boundary_and_wire_and_commit() -> None:
    assert seconds_to_save(LORA) == pytest.approx(1.2 * (0.5 + 1.0) + COMMIT_SECONDS)


@given(outlooks, spans)
def test_more_time_never_saves_less(outlook: Outlook, more: float) -> None:
    longer = replace(outlook, left=outlook.left + more)

    assert ORDER.index(decide(longer).choice) >= ORDER.index(decide(outlook).choice)


@given(outlooks)
def test_what_is_chosen_fits_into_the_time(outlook: Outlook) -> None:
    verdict = decide(outlook)

    assert outlook.step is not None
    assert verdict.needs is not None
    after = outlook.step if verdict.choice is Choice.FINISH_STEP else 0.0
    assert verdict.choice is Choice.RELY or verdict.needs + after <= outlook.left


def test_every_choice_is_told_in_a_sentence_with_its_figures() -> None:
    told = {sentence(decide(replace(LORA, size=size))) for size in (GB, 40 * GB, 98 * GB)}

    assert len(told) == 3
    assert all("Azure takes the machine in 27 s" in s for s in told)


def test_an_upload_that_its_cap_held_back_says_that_the_wire_has_more() -> None:
    assert full_rate(0.85 * GB, cap=0.9 * GB) == pytest.approx(1.8 * GB)
    assert full_rate(0.2 * GB, cap=0.9 * GB) == 0.2 * GB
    assert full_rate(None, cap=0.9 * GB) is None


def test_the_time_of_a_step_is_that_of_the_last_few() -> None:
    tempo = Tempo()
    tempo.heard(10, 100.0)
    unknown = tempo.seconds
    for n in range(1, 30):
        tempo.heard(10 + n, 100.0 + 3.0 * n)
        tempo.heard(10 + n, 101.0 + 3.0 * n)  # heard of again: it is no step

    assert unknown is None
    assert tempo.seconds == pytest.approx(3.0)
