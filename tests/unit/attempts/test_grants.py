"""When nodes are given fresh grants, and whose word of a broken checkpoint is believed."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from service.domain.storage.checkpoint_faults import (
    CheckpointDoubt,
    CheckpointFault,
    CheckpointFinding,
    judge_checkpoint,
)
from service.operations.nodes.grants import Granter
from service.storage.fake import MemoryStore

BOOT = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize("hours", [0.5, 1, 24, 168])
def test_between_two_renewals_of_one_that_polls_lies_never_more_than_an_hour_or_an_eighth(
    hours: float,
) -> None:
    life, poll = timedelta(hours=hours), timedelta(seconds=20)
    nowhere = create_async_engine("postgresql+psycopg://nobody@localhost:1/none")
    granter = Granter(engine=nowhere, store=MemoryStore(), lifetime=life)
    polls = [BOOT + poll * n for n in range(1, 2 * life // poll)]
    renewed = [at for at in polls if granter.is_renewal_minute(BOOT, at)]
    between = [later - at for at, later in pairwise(renewed)]

    assert life / 2 < renewed[0] - BOOT <= life / 2 + 2 * poll
    assert max(between) <= min(timedelta(hours=1), life / 8) + poll
    assert len(renewed) <= len(polls) / 2
    assert hours < 24 or len(renewed) < len(polls) / 30


FAULT = CheckpointFault(file="rank-00001.safetensors", reason="is gone")
WORD = {"file": "rank-00001.safetensors", "reason": "crc64nvme is 1, not 2"}


def finding(node: str, generation: int, attempt: str = "att-1") -> CheckpointFinding:
    return CheckpointFinding(node_id=node, attempt_id=attempt, generation=generation, **WORD)


def test_what_the_service_sees_itself_is_enough_and_one_machines_word_is_not() -> None:
    assert judge_checkpoint([finding("a", 2)], FAULT, "att-1") == FAULT
    assert judge_checkpoint([], FAULT, "att-1") == FAULT
    assert judge_checkpoint([], None, "att-1") is None
    assert judge_checkpoint([finding("a", 2)], None, "att-1") is None


def test_one_machine_that_says_so_again_is_left_and_its_checkpoint_is_not() -> None:
    findings = [finding("a", 2), finding("a", 3)]

    assert judge_checkpoint(findings, None, "att-1") == CheckpointDoubt(**WORD)
    # An attempt on other machines tries the checkpoint itself.
    assert judge_checkpoint(findings, None, "att-2") is None


def test_the_word_of_two_machines_is_believed_in_whatever_attempts_they_were() -> None:
    assert judge_checkpoint([finding("a", 2), finding("b", 2)], None, "att-1") == CheckpointFault(
        **WORD
    )
    assert judge_checkpoint(
        [finding("a", 2), finding("c", 4, "att-2")], None, "att-2"
    ) == CheckpointFault(**WORD)
