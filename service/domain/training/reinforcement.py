"""Resolve the options of reinforcement learning and check them against rows."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trainer.contract import Reinforcement, parse_grader, template_fields

# TRL's GRPOConfig keeps no reference, its RLOOConfig has 0.05; PPO's share of the reward is ours.
BETAS: Final = {"grpo": 0.0, "rloo": 0.05, "ppo": 0.01}
ANSWERS: Final = 8  # to each prompt, as TRL's GRPOConfig has it
PLANNER_CHOOSES: Final = 0  # max_answer_tokens: the planner chooses

_DEFAULT_ANSWER_TOKENS = 512  # tokens of an answer, unless asked for
_PREFIX = "method.reinforcement."


def with_defaults(settings: Reinforcement, max_seq_len: int) -> Reinforcement:
    """Return the options with the maximum length of answers filled in."""
    if settings.max_answer_tokens != PLANNER_CHOOSES:
        return settings
    return replace(settings, max_answer_tokens=min(_DEFAULT_ANSWER_TOKENS, max_seq_len // 2))


def max_prompt_tokens(settings: Reinforcement, max_seq_len: int) -> int:
    """Return the maximum tokens of a prompt, which shares the context with its answer."""
    return max_seq_len - settings.max_answer_tokens


def expected_tokens(settings: Reinforcement) -> int:
    """Return the expected tokens of an answer: half of the maximum, as a guess."""
    return -(-settings.max_answer_tokens // 2)


def parallel_answers(settings: Reinforcement, micro_batch: int) -> int:
    """Return the answers generated side by side: whole micro-batches, up to the option."""
    per_micro_batch = micro_batch * settings.answers
    return max(settings.at_once // per_micro_batch, 1) * per_micro_batch


def trained_per_answer(settings: Reinforcement) -> float:
    """Return the number of trained answers per new answer."""
    return 1 / (1 - settings.replay_share)


def forward_passes(settings: Reinforcement) -> int:
    """Return the forward passes over answers before training, without the reference's.

    One for the old policy's log-probabilities, if training is off-policy or a reference counts; one
    for the critic's values.
    """
    off_policy = settings.steps_per_rollout > 1 or settings.replay_share > 0
    return (off_policy or settings.beta > 0) + (settings.algorithm == "ppo")


def missing_member(settings: Reinforcement, members: Mapping[str, int]) -> str | None:
    """Return what the grader reads of rows and some row lacks, in words; None if nothing.

    ``members`` are a file's, as DatasetSummary has them. Only the first part of a path is checked.
    """
    for path in template_fields(parse_grader(json.loads(settings.grader))):
        name = path.split(".")[0]
        line = members.get(name)
        if line != 0:
            location = f"line {line}" if line else "its first row"
            return f"{location} has no member `{name}`, which the grader reads"
    return None
