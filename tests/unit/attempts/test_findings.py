"""When a checkpoint counts as broken: the service's look, or two machines, and never one alone."""

from service.domain.storage.checkpoint_faults import (
    CheckpointDoubt,
    CheckpointFault,
    CheckpointFinding,
    judge_checkpoint,
)

FAULT = CheckpointFault(file="rank-00001.safetensors", reason="is gone")
WORD = {"file": "rank-00001.safetensors", "reason": "crc64nvme is 1, not 2"}


def finding(node: str, generation: int, attempt: str = "att-1") -> CheckpointFinding:
    return CheckpointFinding(node_id=node, attempt_id=attempt, generation=generation, **WORD)


def test_what_the_service_sees_itself_is_enough() -> None:
    assert judge_checkpoint([finding("a", 2)], FAULT, "att-1") == FAULT
    assert judge_checkpoint([], FAULT, "att-1") == FAULT


def test_what_nobody_complains_of_is_whole() -> None:
    assert judge_checkpoint([], None, "att-1") is None


def test_one_machines_word_alone_makes_it_try_again() -> None:
    assert judge_checkpoint([finding("a", 2)], None, "att-1") is None


def test_one_machine_that_says_so_again_is_left_and_its_checkpoint_is_not() -> None:
    said = [finding("a", 2), finding("a", 3)]

    assert judge_checkpoint(said, None, "att-1") == CheckpointDoubt(**WORD)
    assert judge_checkpoint(said, None, "att-2") is None  # other machines: they try for themselves


def test_the_word_of_two_machines_is_believed_in_whatever_attempts_they_were() -> None:
    assert judge_checkpoint([finding("a", 2), finding("b", 2)], None, "att-1") == CheckpointFault(
        **WORD
    )
    assert judge_checkpoint(
        [finding("a", 2), finding("c", 4, "att-2")], None, "att-2"
    ) == CheckpointFault(**WORD)
