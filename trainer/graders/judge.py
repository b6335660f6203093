"""A reward model as a grader: a frozen copy on every rank."""

import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from rendering.tokens import Tokens, tokenize_whole_chat
from trainer.data.batch import Batch, padded
from trainer.graders.answer import Grade, ModelAnswer
from trainer.model import loading
from trainer.model.tokenizer import load_tokenizer
from trainer.process.non_retryable import NonRetryableError

AT_ONCE = 16  # answers


class RewardModelJudge:
    """Scores a chat with its answer by a reward model."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, today: date) -> None:
        """Load an exported reward model; raise NonRetryableError for another model."""
        loading.require_complete(AutoModelForSequenceClassification, folder, new_head=False)
        model = loading.load_complete(AutoModelForSequenceClassification, folder, dtype=dtype)
        if model.config.num_labels != 1:
            raise NonRetryableError(
                f"a reward model gives one number, this one {model.config.num_labels}: name the "
                "model of a job of method `reward`"
            )
        self._model = model.to(device).eval().requires_grad_(False)
        self._tokenizer, self._device, self._today = load_tokenizer(folder), device, today
        self._max_tokens = model.config.max_position_embeddings
        model.config.pad_token_id = self._tokenizer.pad_token_id

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        """Return an unbounded score for each answer."""
        grades: list[Grade] = []
        for first in range(0, len(answers), AT_ONCE):
            grades += self._grade_batch(answers[first : first + AT_ONCE])
        return grades

    def close(self) -> None:
        """Do nothing: there is no process."""

    def _grade_batch(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        batch = self._batch(answers).to(self._device)
        with torch.no_grad():
            scores = self._model(
                input_ids=batch.ids, attention_mask=batch.attention, use_cache=False
            ).logits
        return [_grade(score) for score in scores[:, 0].float().tolist()]

    def _batch(self, answers: Sequence[ModelAnswer]) -> Batch:
        chats = [
            tokenize_whole_chat(self._tokenizer, self._chat(answer), self._today)
            for answer in answers
        ]
        rows = [
            Tokens(ids[: self._max_tokens], [False] * len(ids[: self._max_tokens])) for ids in chats
        ]
        return padded(rows, self._tokenizer.pad_token_id)

    def _chat(self, answer: ModelAnswer) -> dict[str, Any]:
        reply = {"role": "assistant", "content": answer.text}
        return answer.chat | {"messages": [*answer.chat["messages"], reply]}


def _grade(score: float) -> Grade:
    finite = math.isfinite(score)
    return Grade(score) if finite else Grade(0.0, f"the reward model gives {score}")
