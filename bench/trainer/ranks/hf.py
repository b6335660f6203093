"""Hugging Face's Trainer with DeepSpeed: `torchrun -m bench.trainer.ranks.hf FOLDER`.

Rows, tokens, order, batches, optimizer and DeepSpeed's settings are those of Rekindle's run. Its
collator pads to the longest row of the micro-batch. Rank 0 writes the number of finished steps to
the file `progress` after each step.
"""

import os
import sys
from pathlib import Path
from typing import Any

import deepspeed.ops
import torch
from torch.utils.data import SequentialSampler
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from bench.trainer.case import TrainerCase
from bench.trainer.ranks.prepare import spec
from rendering.tokenizer import Tokenizer
from trainer.data.order import shuffled_row
from trainer.data.tokens import TokenizedOnDemand
from trainer.engine.deepspeed_engine import build_config
from trainer.model.tokenizer import load_tokenizer


class InOrder(Trainer):  # type: ignore[misc] # transformers is untyped here
    """Trainer that reads the rows in order, without shuffling."""

    def _get_train_sampler(self, *_: Any) -> Any:  # noqa: ANN401
        return SequentialSampler(self.train_dataset)


class StepFileCallback(TrainerCallback):  # type: ignore[misc]
    """Callback that writes the number of finished steps to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:  # noqa: ANN401
        self._path.write_text(str(state.global_step))


def main() -> None:
    """Train the case in FOLDER."""
    folder = Path(sys.argv[1])
    case = TrainerCase.read(folder / "case.json")
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no g++, as in Rekindle
    torch.set_num_threads(1)
    run_spec = spec(folder, case)
    config = build_config(run_spec, case.ranks)
    out = folder / "hf_trainer"
    arguments = TrainingArguments(
        output_dir=str(out),
        deepspeed=config,
        use_cpu=case.accelerator == "cpu",
        bf16=case.precision == "bf16",
        per_device_train_batch_size=case.micro_batch,
        gradient_accumulation_steps=config["gradient_accumulation_steps"],
        gradient_checkpointing=case.checkpointing,
        max_steps=case.steps,
        learning_rate=run_spec.learning_rate,
        weight_decay=run_spec.weight_decay,
        adam_beta2=0.95,
        max_grad_norm=run_spec.max_grad_norm,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    model = folder / "models" / "bench"
    tokenizer = AutoTokenizer.from_pretrained(model)
    InOrder(
        model=_model(folder / "models" / "bench", case),  # after the arguments, for ZeRO-3
        args=arguments,
        train_dataset=_dataset(folder, case, load_tokenizer(model)),
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
        callbacks=[StepFileCallback(out / "progress")] if os.environ["RANK"] == "0" else [],
    ).train()


def _model(folder: Path, case: TrainerCase) -> Any:  # noqa: ANN401
    from transformers import AutoModelForCausalLM  # noqa: PLC0415 - after DS_ACCELERATOR

    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if not case.lora:
        return model
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415

    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, lora)


def _dataset(folder: Path, case: TrainerCase, tokenizer: Tokenizer) -> list[dict[str, list[int]]]:
    run_spec = spec(folder, case)
    source = TokenizedOnDemand(folder / "files" / "train.jsonl", tokenizer, run_spec)
    rows = (source[shuffled_row(run_spec.seed, len(source), n)] for n in range(len(source)))
    return [
        {
            "input_ids": row.ids,
            "labels": [i if t else -100 for i, t in zip(row.ids, row.trained, strict=True)],
        }
        for row in rows
    ]


if __name__ == "__main__":
    main()
