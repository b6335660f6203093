"""`python -m trainer.win_rate A B --prompts FILE --judge DIR`: compare the answers of two models.

All three are folders of `rekindle download`: two language models, and a reward model that reads
both answers to each prompt. A wins a prompt when its answer is rated higher; equal answers are a
tie. Decoding is greedy unless `--temperature` is set; then draws follow from the seed and the row.
On a CPU the same call gives the same numbers, bit for bit.

A reward model's preference is not people's preference.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rendering.rows import read_prompt
from rendering.tokens import tokenize_prompt
from trainer.contract import Reinforcement
from trainer.data.rows import JsonlRows
from trainer.graders.answer import CHAT, ModelAnswer
from trainer.graders.judge import RewardModelJudge
from trainer.model import loading
from trainer.model.tokenizer import load_tokenizer
from trainer.rollout.sampler import Sampler
from trainer.wins import RatedAnswer, compare_answers, summary_text

AT_ONCE = 8  # prompts
WRITES, RATES = "ForCausalLM", "ForSequenceClassification"
DAY = date(2000, 1, 1)  # date for chat templates: the same on any day


class PlainEngine:
    """A model without DeepSpeed, with the engine methods that a sampler needs."""

    def __init__(self, module: Any, device: torch.device) -> None:  # noqa: ANN401 - untyped
        self.module, self.device = module.to(device), device

    def zero_optimization_stage(self) -> int:
        """Return 0: nothing is sharded."""
        return 0

    def train(self, mode: bool = True) -> None:
        """Set training mode as torch does."""
        self.module.train(mode)

    def eval(self) -> None:
        """Set evaluation mode as torch does."""
        self.module.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the result; exit with status 1 and a message on failure."""
    options = _parser().parse_args(arguments)
    try:
        rows = _rows(options.prompts, options.rows)
        for folder, kind in ((options.judge, RATES), (options.a, WRITES), (options.b, WRITES)):
            _config(folder, kind)  # before anything takes minutes
        device = torch.device(options.device)
        answers = [
            _answer_prompts(model, rows, options, device) for model in (options.a, options.b)
        ]
        rated = _rate_answers(options.judge, rows, answers, device)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    result = compare_answers(rated[0], rated[1])
    if options.out:
        options.out.write_text(
            "".join(_line(r, a, b) for r, a, b in zip(rows, *rated, strict=True))
        )
    sys.stdout.write(json.dumps(asdict(result)) + "\n" if options.json else summary_text(result))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.win_rate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", type=Path)
    parser.add_argument("b", type=Path)
    parser.add_argument("--prompts", type=Path, required=True, help="rows as reinforcement has")
    parser.add_argument("--judge", type=Path, required=True, help="a reward model's folder")
    parser.add_argument("--rows", type=_positive, default=200, help="the first so many (200)")
    parser.add_argument("--max-tokens", type=_positive, default=256, help="of an answer (256)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest (0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="both answers to each prompt, as JSONL")
    parser.add_argument("--json", action="store_true")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it is {text}, but it must be a whole number above 0")
    return int(text)


def _rows(file: Path, most: int) -> list[dict[str, Any]]:
    dataset = JsonlRows(file, read_prompt)
    return [dataset[row][0] for row in islice(range(len(dataset)), most)]


def _answer_prompts(
    folder: Path, rows: list[dict[str, Any]], options: argparse.Namespace, device: torch.device
) -> list[RatedAnswer]:
    """Return the model's answers in the rows' order; the model is freed afterwards."""
    config, tokenizer = _config(folder, WRITES), load_tokenizer(folder)
    ids = [tokenize_prompt(tokenizer, row, DAY) for row in rows]
    _require_room(folder, ids, options.max_tokens, config.max_position_embeddings)
    loading.require_complete(AutoModelForCausalLM, folder, new_head=False)
    model = loading.load_complete(AutoModelForCausalLM, folder, dtype="auto")
    settings = Reinforcement(
        algorithm="",
        grader="",
        answers=1,
        max_answer_tokens=options.max_tokens,
        temperature=options.temperature or 1.0,
    )
    sampler = Sampler(PlainEngine(model, device), tokenizer, settings, options.seed, lambda: False)
    answers: list[list[int]] = []
    for first in range(0, len(ids), AT_ONCE):
        batch = range(first, min(first + AT_ONCE, len(ids)))
        draws = [(row, 0) for row in batch] if options.temperature else None
        answers += sampler.answers([ids[row] for row in batch], draws)
    return [
        RatedAnswer(
            text=tokenizer.decode(tokens, skip_special_tokens=True),
            is_cut=len(tokens) == options.max_tokens and tokens[-1] != tokenizer.eos_token_id,
        )
        for tokens in answers
    ]


def _config(folder: Path, kind: str) -> Any:  # noqa: ANN401
    """Return the configuration; refuse another kind of model, whose head would be random."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; give one that `rekindle download` has made")
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    architecture = (config.architectures or ["nothing"])[0]
    if not architecture.endswith(kind):
        raise ValueError(f"{folder} holds a {architecture}; here it must be a model {kind}")
    return config


def _require_room(folder: Path, ids: list[list[int]], tokens: int, longest: int) -> None:
    for row, prompt_of in enumerate(ids, 1):
        if len(prompt_of) + tokens > longest:
            raise ValueError(
                f"row {row} has {len(prompt_of)} tokens; with --max-tokens {tokens} that is more "
                f"than the {longest} of {folder}: shorten it, or lower --max-tokens"
            )


def _rate_answers(
    folder: Path, rows: list[dict[str, Any]], answers: list[list[RatedAnswer]], device: torch.device
) -> list[list[RatedAnswer]]:
    """Add the reward model's scores."""
    judge = RewardModelJudge(folder, device, _config(folder, RATES).dtype or torch.float32, DAY)
    chats = [{name: row[name] for name in CHAT if name in row} for row in rows]
    rated = []
    for model_answers in answers:
        grades = judge.grade(
            [ModelAnswer(t.text, {}, c) for t, c in zip(model_answers, chats, strict=True)]
        )
        rewards = [None if grade.error else grade.score for grade in grades]
        rated.append([replace(t, reward=r) for t, r in zip(model_answers, rewards, strict=True)])
    return rated


def _line(row: dict[str, Any], a: RatedAnswer, b: RatedAnswer) -> str:
    return json.dumps({"messages": row["messages"], "a": asdict(a), "b": asdict(b)}) + "\n"


if __name__ == "__main__":
    main()
