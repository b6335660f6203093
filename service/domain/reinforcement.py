"""Learning from grades: what its options may be, and what those that are left out become."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from contract.choices import MAX_ANSWERS, MAX_BETA
from trainer.contract import Reinforcement, parse_grader, template_fields

ALGORITHMS: Final = ("grpo", "rloo", "ppo")
# TRL's GRPOConfig keeps no reference, its RLOOConfig has 0.05; PPO's share of the reward is ours.
BETAS: Final = {"grpo": 0.0, "rloo": 0.05, "ppo": 0.01}
ANSWERS: Final = 8  # to each prompt, as TRL's GRPOConfig has it
LEFT_TO_US: Final = 0  # max_answer_tokens that nobody has chosen yet

_LONGEST = 512  # tokens of an answer, unless asked for
_AT = "method.reinforcement."

Rule = tuple[str, object, bool, str]  # parameter, its value, whether it is fine, what would be


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


def rules(asked: Reinforcement | None, max_seq_len: int) -> Iterator[Rule]:
    """Every option held against its range, then against the others."""
    if asked is None:
        return
    at, answers, longest = _AT, asked.answers, settled(asked, max_seq_len).max_answer_tokens
    fine = asked.algorithm in ALGORITHMS
    yield f"{at}algorithm", asked.algorithm, fine, "grpo, rloo or ppo"
    least = 1 if asked.algorithm == "ppo" else 2
    why = "" if least == 1 else f", as {asked.algorithm} compares the answers to a prompt"
    fine = least <= answers <= MAX_ANSWERS
    yield f"{at}answers", answers, fine, f"{least} to {MAX_ANSWERS}{why}"
    most = max_seq_len - 1
    what = f"1 to {most}: max_seq_len is {max_seq_len}, and the prompt has to fit as well"
    yield f"{at}max_answer_tokens", longest, 1 <= longest <= most, what
    yield f"{at}temperature", asked.temperature, 0 < asked.temperature <= 2, "in (0, 2]"
    yield f"{at}top_p", asked.top_p, 0 < asked.top_p <= 1, "in (0, 1]"
    yield f"{at}clip", asked.clip, 0 < asked.clip < 1, "between 0 and 1"
    steps, decay = asked.steps_per_rollout, asked.gae_lambda
    yield f"{at}steps_per_rollout", steps, 1 <= steps <= 16, "1 to 16"
    yield f"{at}gae_lambda", decay, 0 <= decay <= 1, "0 to 1"
    yield f"{at}replay_share", asked.replay_share, 0 <= asked.replay_share <= 0.5, "0 to 0.5"
    age = asked.replay_max_age
    yield f"{at}replay_max_age", age, 1 <= age <= 100_000, "1 to 100000 steps"
    yield from _leash(asked)


def _leash(asked: Reinforcement) -> Iterator[Rule]:
    """What holds the model near the base model."""
    at, beta, end, target = _AT, asked.beta, asked.beta_end, asked.kl_target
    yield f"{at}beta", beta, 0 <= beta <= MAX_BETA, f"0 to {MAX_BETA:g}"
    if end is not None:
        yield f"{at}beta_end", end, 0 <= end <= MAX_BETA, f"0 to {MAX_BETA:g}"
        yield f"{at}beta_end", end, beta > 0, "left out, or beta above 0 to begin with"
        yield f"{at}beta_end", end, target is None, "left out beside kl_target, which moves beta"
    if target is not None:
        yield f"{at}kl_target", target, 0 < target <= 1000, "in (0, 1000]"
        yield f"{at}kl_target", target, beta > 0, "left out, or beta above 0 to begin with"


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
