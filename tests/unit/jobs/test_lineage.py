"""Names of models that jobs have made, and which jobs another one is based on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.models import lineage
from service.domain.models.lineage import ModelSource
from tests.datasets import GRADER
from trainer.contract import Reinforcement

PROJECT, JOB = "proj-01", "ftjob-02"
ASKING = {"type": "reward_model", "model": f"ft:a/b:{PROJECT}::ftjob-09"}


def settings(grader: object) -> Reinforcement:
    return Reinforcement(
        algorithm="grpo", grader=json.dumps(grader), answers=8, max_answer_tokens=64
    )


@given(base=st.text(st.characters(exclude_characters=":"), min_size=1), suffix=st.text())
def test_a_line_keeps_its_base_and_names_its_newest_job(base: str, suffix: str) -> None:
    """Whatever stands in a suffix."""
    first = lineage.model_name(base, PROJECT, suffix, JOB)
    second = lineage.model_name(first, PROJECT, None, "ftjob-03")

    assert first == f"ft:{base}:{PROJECT}:{suffix}:{JOB}"
    assert second == f"ft:{base}:{PROJECT}::ftjob-03"
    assert (lineage.training_job_id(first), lineage.training_job_id(second)) == (JOB, "ftjob-03")
    assert lineage.is_made(first)


@given(suffix=st.text(), step=st.integers(0, 10**9 - 1))
def test_a_checkpoint_is_named_by_its_job_and_step(suffix: str, step: int) -> None:
    model = lineage.model_name("a/b", PROJECT, suffix, JOB)

    for name in (model, JOB):
        checkpoint = lineage.checkpoint_name(name, step)

        assert lineage.source(checkpoint) == ModelSource(JOB, step)
        assert lineage.without_step(checkpoint) == name
        assert lineage.source(name) == ModelSource(JOB)
    child_name = lineage.model_name(lineage.checkpoint_name(model, step), PROJECT, None, "ftjob-03")
    assert child_name == f"ft:a/b:{PROJECT}::ftjob-03", "the line keeps its base"


@pytest.mark.parametrize("step", ["", "-1", "07", "1.0", "1\n", "9999999999"])
def test_only_a_number_as_it_was_written_names_a_step(step: str) -> None:
    assert not lineage.source(f"{JOB}:ckpt-step-{step}").is_checkpoint


def test_a_checkpoint_needs_the_model_that_its_job_began_with_and_a_base_model_is_nobodys() -> None:
    """Unless that was a checkpoint: what was made of it lies in the job's own container."""
    model = lineage.model_name("a/b", PROJECT, None, JOB)

    assert lineage.base_of("a/b") is None
    assert lineage.base_of(model) == ModelSource(JOB)
    assert lineage.base_of(lineage.checkpoint_name(model, 3)) is None
    assert not lineage.is_made("rekindle/tiny-llama")
    assert lineage.first_base("rekindle/tiny-llama", PROJECT) == "rekindle/tiny-llama"
    assert lineage.sources("rekindle/tiny-llama", None) == frozenset()


@pytest.mark.parametrize("named", [f"ft:a/b:{PROJECT}::{JOB}", JOB])
def test_a_job_reads_what_it_begins_with_and_what_its_grader_asks(named: str) -> None:
    multi = {
        "type": "multi",
        "graders": {"right": GRADER, "liked": ASKING},
        "calculate_output": "right + liked",
    }

    assert lineage.sources(named, None) == {ModelSource(JOB)}
    assert lineage.sources(named, settings(GRADER)) == {ModelSource(JOB)}
    assert lineage.sources(named, settings(ASKING)) == {ModelSource(JOB), ModelSource("ftjob-09")}
    assert lineage.sources("a/b", settings(multi)) == {ModelSource("ftjob-09")}
