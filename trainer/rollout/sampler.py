"""Sample answers with Hugging Face's `generate` and our own random draws.

Each token follows from (seed, sample, number of the answer, position) and the model, not from a
generator's state: an answer is the same on any rank, and a resume has nothing to restore.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from trainer.contract import Reinforcement
from trainer.model.actor_critic import actor_of
from trainer.model.eval_mode import evaluation_mode

CHECK_EVERY = 16  # tokens between two stop checks
LANE = 0x526F6C6C  # keeps these draws apart from those of the data's order


class Sampler:
    """Answers prompts with the current model."""

    def __init__(
        self,
        engine: Any,  # noqa: ANN401
        tokenizer: Any,  # noqa: ANN401
        settings: Reinforcement,
        seed: int,
        is_stop_requested: Callable[[], bool],
    ) -> None:
        self._engine, self._settings, self._seed = engine, settings, seed
        self._pad_id, self._end_token_ids = tokenizer.pad_token_id, _end_tokens(engine, tokenizer)
        self._stop = StoppingCriteriaList([_StopOnRequest(is_stop_requested)])
        self._sharded = engine.zero_optimization_stage() == 3

    def answers(
        self, prompts: Sequence[list[int]], draws: Sequence[tuple[int, int]] | None
    ) -> list[list[int]]:
        """Answer each prompt; ``draws`` are (sample, number), None takes the most likely tokens.

        Every rank calls it as often, an idle one without prompts. After a stop request the answers
        are cut short: the caller drops them.
        """
        if not prompts and not self._sharded:
            return []
        ids_BT, attention_BT = _padded_left(list(prompts) or [[self._pad_id]], self._pad_id)
        output_BT = self._generate(ids_BT, attention_BT, self._processors(draws))
        answer_ids = output_BT[:, ids_BT.shape[1] :].tolist()
        return [self._cut(tokens) for tokens in answer_ids[: len(prompts)]]

    def _generate(
        self,
        ids_BT: torch.Tensor,
        attention_BT: torch.Tensor,
        processors: LogitsProcessorList,
    ) -> torch.Tensor:
        device, model = self._engine.device, actor_of(self._engine.module)
        with (
            torch.no_grad(),
            evaluation_mode(self._engine),
            _use_generation_config(model, self._config()),
        ):
            output_BT: torch.Tensor = model.generate(
                input_ids=ids_BT.to(device),
                attention_mask=attention_BT.to(device),
                logits_processor=processors,
                stopping_criteria=self._stop,
                synced_gpus=self._sharded,
            )
        return output_BT.cpu()

    def _config(self) -> GenerationConfig:
        return GenerationConfig(
            max_new_tokens=self._settings.max_answer_tokens,
            do_sample=False,  # the processor leaves one token
            use_cache=True,
            eos_token_id=self._end_token_ids,
            pad_token_id=self._pad_id,
        )

    def _processors(self, draws: Sequence[tuple[int, int]] | None) -> LogitsProcessorList:
        if draws is None:
            return LogitsProcessorList()
        longest = self._settings.max_answer_tokens
        uniform_rows = [uniforms(self._seed, *draw, longest) for draw in draws] or [
            np.zeros(longest)
        ]
        return LogitsProcessorList(
            [_FixedDraws(torch.from_numpy(np.stack(uniform_rows)), self._settings)]
        )

    def _cut(self, tokens: list[int]) -> list[int]:
        """Cut after the token that ends the answer."""
        end = next(
            (n for n, token in enumerate(tokens) if token in self._end_token_ids), len(tokens) - 1
        )
        return tokens[: end + 1]


def uniforms(seed: int, sample: int, number: int, count: int) -> np.ndarray[Any, Any]:
    """Return numbers in [0, 1) [count], fp64; only raw Philox bits are used."""
    key = np.array([seed ^ LANE << 32, sample], dtype=np.uint64)
    bits = np.random.Philox(key=key, counter=[0, number, 0, 0])
    return (bits.random_raw(count) >> np.uint64(11)) * 2.0**-53


class _FixedDraws(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped
    """Keeps one token of each row: where the cumulated probability passes the row's draw."""

    def __init__(self, uniforms_BT: torch.Tensor, settings: Reinforcement) -> None:
        self._uniforms_BT, self._position = uniforms_BT, 0
        self._temperature, self._top_p = settings.temperature, settings.top_p

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        """Set all scores [rows, vocabulary] but one to minus infinity."""
        draw_B1 = self._uniforms_BT[:, self._position, None].to(scores.device)
        self._position += 1
        token_B1 = sample_tokens(scores / self._temperature, draw_B1, self._top_p)
        every = torch.arange(scores.shape[1], device=scores.device)
        return torch.where(every == token_B1, 0.0, -torch.inf)


def sample_tokens(logits_BV: torch.Tensor, draw_B1: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the token of each row's draw in [0, 1) [rows, 1], from the top ``top_p``.

    Probabilities are multiples of 2^-44: integer sums are the same in any order, and torch has no
    deterministic float sum along a row on a GPU.
    """
    weight_BV, order_BV = (
        (logits_BV.double().softmax(-1) * 2.0**44).long().sort(descending=True, stable=True)
    )
    before_BV = weight_BV.cumsum(-1) - weight_BV
    kept_BV = torch.where(before_BV.double() < top_p * 2.0**44, weight_BV, 0)
    upto_BV = kept_BV.cumsum(-1)
    place_B1 = (upto_BV <= (draw_B1 * upto_BV[:, -1:]).long()).sum(-1, keepdim=True)
    return order_BV.gather(1, place_B1.clamp(max=logits_BV.shape[1] - 1))  # for NaN


class _StopOnRequest(StoppingCriteria):  # type: ignore[misc]  # the same
    """Ends every answer of this rank after a stop request.

    With ZeRO-3 computation continues for the other ranks until they have ended too.
    """

    def __init__(self, is_stop_requested: Callable[[], bool]) -> None:
        self._is_stop_requested, self._calls = is_stop_requested, 0

    def __call__(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:  # noqa: ANN401
        """Return whether each row ends here."""
        self._calls += 1
        ended = self._calls % CHECK_EVERY == 0 and self._is_stop_requested()
        return torch.full((len(input_ids),), ended, device=input_ids.device)


@contextmanager
def _use_generation_config(model: Any, config: GenerationConfig) -> Iterator[None]:  # noqa: ANN401
    """Use only this configuration; the base model's, such as a repetition penalty, is ignored."""
    saved = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = saved


def _padded_left(prompts: list[list[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and attention mask, both [prompts, longest]."""
    width = max(len(ids) for ids in prompts)
    ids_BT = torch.full((len(prompts), width), pad_id)
    attention_BT = torch.zeros_like(ids_BT)
    for b, ids in enumerate(prompts):
        ids_BT[b, width - len(ids) :] = torch.tensor(ids)
        attention_BT[b, width - len(ids) :] = 1
    return ids_BT, attention_BT


def _end_tokens(engine: Any, tokenizer: Any) -> list[int]:  # noqa: ANN401
    """Return the tokens that end an answer: the tokenizer's and the base model's."""
    eos_token_id = actor_of(engine.module).generation_config.eos_token_id
    eos_token_ids = eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]
    return sorted(
        {token for token in (*eos_token_ids, tokenizer.eos_token_id) if token is not None}
    )
