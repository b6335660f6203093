"""Learning from grades: what its options may be, and what those that are left out become."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trainer.contract import Reinforcement, parse_grader, template_fields

# TRL's GRPOConfig keeps no reference, its RLOOConfig has 0.05; PPO's share of the reward is ours.
BETAS: Final = {"grpo": 0.0, "rloo": 0.05, "ppo": 0.01}
ANSWERS: Final = 8  # to each prompt, as TRL's GRPOConfig has it
LEFT_TO_US: Final = 0  # max_answer_tokens that nobody has chosen yet

_LONGEST = 512  # tokens of an answer, unless asked for
_AT = "method.reinforcement."


def settled(asked: Reinforcement, max_seq_len: int) -> Reinforcement:
    """With the length that answers may have."""
    if asked.max_answer_tokens != LEFT_TO_US:
        return asked
    return replace(asked, max_answer_tokens=min(_LONGEST, max_seq_len // 2))


def room(settings: Reinforcement, max_seq_len: int) -> int:
    """Tokens that a prompt may have: its answer must fit beside it."""
    return max_seq_len - settings.max_answer_tokens


def expected_tokens(settings: Reinforcement) -> int:
    """Of a mean answer: half of what is allowed, as nobody knows before."""
    return -(-settings.max_answer_tokens // 2)


def at_once(settings: Reinforcement, micro_batch: int) -> int:
    """Answers that a process writes side by side: as many micro-batches as go into so many."""
    one = micro_batch * settings.answers
    return max(settings.at_once // one, 1) * one


def with_replay(settings: Reinforcement) -> float:
    """How many answers are trained on for each that is new."""
    return 1 / (1 - settings.replay_share)


def passes(settings: Reinforcement) -> int:
    """Forward passes over the answers before they are trained on, the reference's left out.

    What the policy that gave them thought of each token, where that is not the policy of now or a
    reference is held against it; and what the critic expected.
    """
    off_policy = settings.steps_per_rollout > 1 or settings.replay_share > 0
    return (off_policy or settings.beta > 0) + (settings.algorithm == "ppo")


def lacking(settings: Reinforcement, members: Mapping[str, int]) -> str | None:
    """What the grader reads of rows and some row has not, in words; None when all is there.

    ``members`` are a file's, as DatasetSummary has them. Of a path only its beginning is known.
    """
    for path in template_fields(parse_grader(json.loads(settings.grader))):
        name = path.split(".")[0]
        line = members.get(name)
        if line != 0:
            where = f"line {line}" if line else "its first row"
            return f"{where} has no member `{name}`, which the grader reads"
    return None
