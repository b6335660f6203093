"""Run rollouts: the model answers prompts, a grader grades the answers.

Further passes add each token's log-probability by the model and by the base model.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from trainer.contract import Reinforcement, RunSpec
from trainer.data.order import shuffled_row
from trainer.data.prompts import ChatPrompt, Prompts
from trainer.graders.answer import Grade, Grader, ModelAnswer
from trainer.methods.forward import log_probabilities
from trainer.methods.reference_model import ReferenceModel
from trainer.model.eval_mode import evaluation_mode
from trainer.process.non_retryable import RECURRING
from trainer.rollout.advantages import group_advantages, leave_one_out_advantages
from trainer.rollout.answer_batch import answer_batch
from trainer.rollout.experience import GradedAnswer
from trainer.rollout.reward_metrics import RewardSums
from trainer.rollout.sampler import Sampler

log = logging.getLogger("trainer")


@dataclass(frozen=True, kw_only=True)
class RolloutCollector:
    """The objects that a rollout works with."""

    spec: RunSpec
    engine: Any
    tokenizer: Any
    prompts: Prompts
    sampler: Sampler
    grader: Grader
    reference: ReferenceModel | None
    stop: Callable[[], bool]  # collective: is a stop requested of any rank?
    stop_here: Callable[[], bool]  # of this rank, without waiting for others
    now: Callable[[], float]

    def run_rollout(
        self, micros: Sequence[Sequence[int]], beta: float, born: int
    ) -> tuple[list[GradedAnswer], RewardSums] | None:
        """Answer the prompts of these samples, one list per micro-batch, as many on every rank.

        None when a stop was requested meanwhile.
        """
        rows: list[GradedAnswer] = []
        figures = RewardSums()
        if self.stop():
            return None
        for group in self._groups(micros):
            prompts = {s: self.prompts[self._row(s)] for micro in group for s in micro}
            graded, figures = self._grade_rows(
                self._generate_answers(prompts, born), prompts, figures
            )
            if self.stop():  # before the next collectives; answers may have been cut short
                return None
            for micro in group:
                rows += self._add_log_probabilities([row for row in graded if row.sample in micro])
        if self.reference is not None:
            figures = replace(figures, kl=sum(_kl(row) for row in rows))
        return list(self._add_advantages(rows, beta)), figures

    def cut_to_context(self, prompt: ChatPrompt, answer: Sequence[int]) -> Sequence[int]:
        """Return the part of an answer that fits into the context after its prompt."""
        return answer[: max(self.spec.max_seq_len - len(prompt.ids), 0)]

    def grade(self, answers: Sequence[tuple[ChatPrompt, Sequence[int]]]) -> list[Grade]:
        """Grade each answer to its prompt; errors are no exceptions."""
        decode = self.tokenizer.decode
        model_answers = [
            ModelAnswer(decode(ids, skip_special_tokens=True), prompt.item, prompt.chat)
            for prompt, ids in answers
        ]
        return grade_in_slices(self.grader, model_answers, self.stop_here, self.now)

    def _groups(self, micros: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
        """Yield micro-batches that are answered at once; as many groups on every rank."""
        group_size = self.settings.at_once // (self.spec.micro_batch * self.settings.answers)
        for first in range(0, len(micros), max(group_size, 1)):
            yield micros[first : first + max(group_size, 1)]

    @property
    def settings(self) -> Reinforcement:
        """The run's options of reinforcement learning."""
        assert self.spec.reinforcement is not None
        return self.spec.reinforcement

    def _generate_answers(self, prompts: Mapping[int, ChatPrompt], born: int) -> list[GradedAnswer]:
        """Answer the prompts; those without room for an answer are skipped."""
        fitting = [s for s, prompt in prompts.items() if len(prompt.ids) < self.spec.max_seq_len]
        if too_long := sorted(prompts.keys() - set(fitting)):
            first = self.prompts.file_and_line(self._row(too_long[0]))
            log.warning("%d prompts leave no room for an answer, as %s", len(too_long), first)
        draws = [(sample, number) for sample in fitting for number in range(self.settings.answers)]
        answers = self.sampler.answers([prompts[sample].ids for sample, _ in draws], draws)
        return [
            GradedAnswer(
                sample=sample,
                number=number,
                born=born,
                ids=np.array(
                    [*prompts[sample].ids, *self.cut_to_context(prompts[sample], answer)],
                    dtype=np.int32,
                ),
                prompt=len(prompts[sample].ids),
                grade=0.0,
            )
            for (sample, number), answer in zip(draws, answers, strict=True)
        ]

    def rows_of_samples(self, samples: Iterable[int]) -> list[int]:
        """Return the rows of these samples, each once."""
        return sorted({self._row(sample) for sample in samples})

    def leaves_room(self, row: int) -> bool:
        """Return whether the row's prompt leaves room for an answer."""
        return len(self.prompts[row].ids) < self.spec.max_seq_len

    def _row(self, sample: int) -> int:
        return shuffled_row(self.spec.seed, len(self.prompts), sample)

    def _grade_rows(
        self, rows: Sequence[GradedAnswer], prompts: Mapping[int, ChatPrompt], figures: RewardSums
    ) -> tuple[list[GradedAnswer], RewardSums]:
        """Grade the answers; those that fail are counted and dropped."""
        grades = self.grade([(prompts[row.sample], row.ids[row.prompt :].tolist()) for row in rows])
        failures = [(r.sample, g.error) for r, g in zip(rows, grades, strict=True) if g.error]
        graded = [
            replace(row, grade=grade.score)
            for row, grade in zip(rows, grades, strict=True)
            if not grade.error
        ]
        return graded, RewardSums(
            answers=figures.answers + len(rows),
            grades=figures.grades + sum(row.grade for row in graded),
            squares=figures.squares + sum(row.grade**2 for row in graded),
            uneven=figures.uneven + _count_uneven(graded),
            tokens=figures.tokens + sum(row.tokens for row in rows),
            errors=figures.errors + len(failures),
            error=figures.error or (self._locate_error(*failures[0]) if failures else ""),
        )

    def _locate_error(self, sample: int, error: str) -> str:
        return f"{self.prompts.file_and_line(self._row(sample))}: {error}"

    def _add_log_probabilities(self, rows: Sequence[GradedAnswer]) -> list[GradedAnswer]:
        """Add the log-probabilities that the losses need; a pass is made even without rows."""
        settings = self.settings
        off_policy = settings.steps_per_rollout > 1 or settings.replay_share > 0
        if self.reference is None and not off_policy:
            return list(rows)
        batch = answer_batch(rows, self.tokenizer.pad_token_id, least=self.settings.answers)
        batch = batch.to(self.engine.device)
        with torch.no_grad(), evaluation_mode(self.engine):
            policy_logprobs = log_probabilities(self.engine, batch, settings.temperature)
        reference_logprobs = (
            policy_logprobs[:0] if self.reference is None else self.reference(batch)
        )
        return [
            replace(row, behaviour=a, reference=b)
            for row, a, b in zip(
                rows,
                _split_by_row(policy_logprobs, rows),
                _split_by_row(reference_logprobs, rows),
                strict=True,
            )
        ]

    def _add_advantages(self, rows: Sequence[GradedAnswer], beta: float) -> Iterator[GradedAnswer]:
        """Add the advantage over the other answers to the same prompt, if needed."""
        algorithm = self.settings.algorithm
        for _, same in groupby(rows, key=lambda row: row.sample):
            group = list(same)
            if algorithm == "ppo" or len(group) < 2:
                yield from group
                continue
            penalty = beta if algorithm == "rloo" else 0.0
            rewards = [row.grade - penalty * _kl(row) for row in group]
            advantages = (
                leave_one_out_advantages(rewards)
                if algorithm == "rloo"
                else group_advantages(rewards)
            )
            for row, advantage in zip(group, advantages, strict=True):
                yield replace(row, advantage=float(advantage))


def _count_uneven(rows: Sequence[GradedAnswer]) -> int:
    """Return how many prompts have answers with different grades."""
    pairs = {(row.sample, row.grade) for row in rows}
    return sum(count > 1 for count in Counter(sample for sample, _ in pairs).values())


def _split_by_row(of_N: torch.Tensor, rows: Sequence[GradedAnswer]) -> list[Any]:
    """Split values of all tokens by row; empty values stay empty."""
    flat = of_N.cpu().numpy()
    if not len(flat):
        return [flat] * len(rows)
    ends = np.cumsum([row.tokens for row in rows])
    return np.split(flat, ends[:-1]) if len(rows) else []


def _kl(row: GradedAnswer) -> float:
    """Return the answer's log-probability by the policy less that by the base model, in nats."""
    return float((row.behaviour - row.reference).sum()) if len(row.reference) else 0.0


SLICE = 8  # answers between two stop checks
# Seconds for all of them: half of what the other ranks wait in a collective.
TIMEOUT_SECONDS = 300.0
TIMEOUT_MESSAGE = f"the answers before it took the grader {TIMEOUT_SECONDS:.0f} s; make it faster"


def grade_in_slices(
    grader: Grader,
    answers: Sequence[ModelAnswer],
    is_stop_requested: Callable[[], bool],
    now: Callable[[], float],
) -> list[Grade]:
    """Return one grade for each answer; an error for those that there is no time for.

    After a stop request nothing more is graded: the caller drops the grades.
    """
    deadline, grades = now() + TIMEOUT_SECONDS, list[Grade]()
    for first in range(0, len(answers), SLICE):
        batch = answers[first : first + SLICE]
        if is_stop_requested() or now() > deadline:
            grades += [Grade(0.0, TIMEOUT_MESSAGE)] * len(batch)
        else:
            grades += _grades(grader, batch)
    return grades


def _grades(grader: Grader, answers: Sequence[ModelAnswer]) -> list[Grade]:
    """Grade all at once; if that fails, one by one, to find the answer at fault."""
    try:
        return grader.grade(answers)
    except RECURRING as e:
        if len(answers) == 1:
            return [Grade(0.0, f"{type(e).__name__}: {e}")]
        return [grade for answer in answers for grade in _grades(grader, [answer])]
