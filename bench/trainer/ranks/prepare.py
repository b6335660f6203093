"""Inputs of a case: `python -m bench.trainer.ranks.prepare FOLDER`.

FOLDER holds `case.json`. It writes a model with random weights, chats of widely varying length,
as in real data, and the run folders.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

from bench.checkpoint.ranks.spec import plain_spec
from bench.trainer.case import PACKED, REKINDLE, Inputs, TrainerCase
from trainer.contract import Generation, InputFile, Lora, Member, RunSpec
from trainer.data.order import shuffled_row
from trainer.data.tokens import TokenizedOnDemand
from trainer.model.tokenizer import load_tokenizer
from trainer.rundir import RunDir
from trainer.sample_data.tiny_chats import chats
from trainer.tiny import build_tokenizer

SPEC_SHA256 = "5" * 64
QUESTIONS = (1, 1, 1, 2, 2, 3, 5, 8, 13)  # questions of a row, chosen uniformly


def main() -> None:
    """Write all inputs, and their sizes to `inputs.json`."""
    folder = Path(sys.argv[1])
    case = TrainerCase.read(folder / "case.json")
    model = folder / "models" / "bench"
    build_tokenizer().save_pretrained(model)
    parameters = _model(case, model)
    data = folder / "files" / "train.jsonl"
    data.parent.mkdir()
    with data.open("w") as lines:
        for messages in _rows(case.steps * case.global_batch):
            lines.write(json.dumps({"messages": messages}) + "\n")
    for name in (REKINDLE, PACKED):
        write_run(folder, name, spec(folder, case, packing=name == PACKED))
    source = TokenizedOnDemand(data, load_tokenizer(model), spec(folder, case))
    steps = [
        [
            source[shuffled_row(1, len(source), step * case.global_batch + n)]
            for n in range(case.global_batch)
        ]
        for step in range(case.steps)
    ]
    Inputs(
        parameters=parameters,
        tokens=[sum(len(row.ids) for row in rows) for rows in steps],
        trained=[sum(sum(row.trained) for row in rows) for rows in steps],
    ).write(folder / "inputs.json")


def spec(folder: Path, case: TrainerCase, *, packing: bool = False) -> RunSpec:
    """Return the run spec of the case."""
    return plain_spec(
        model=[input_file(folder, path) for path in sorted((folder / "models/bench").iterdir())],
        rows=input_file(folder, folder / "files" / "train.jsonl"),
        total_steps=case.steps,
        global_batch=case.global_batch,
        micro_batch=case.micro_batch,
        max_seq_len=case.max_seq_len,
        learning_rate=1e-4,
        warmup_steps=1,
        weight_decay=0.1,
        precision=case.precision,
        zero_stage=case.zero_stage,
        lora=Lora(rank=16, alpha=32, dropout=0.0) if case.lora else None,
        gradient_checkpointing=case.checkpointing,
        processes_per_node=case.ranks,
        packing=packing,
        loss_chunk=case.loss_chunk,
    )


def _model(case: TrainerCase, folder: Path) -> int:
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=case.vocabulary,
            hidden_size=case.hidden,
            intermediate_size=case.hidden * 11 // 4,
            num_hidden_layers=case.layers,
            num_attention_heads=max(case.hidden // 64, 1),
            num_key_value_heads=max(case.hidden // 128, 1),
            max_position_embeddings=case.max_seq_len,
        )
    )
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def _rows(count: int) -> Iterator[list[dict[str, str]]]:
    random = Random(5)  # noqa: S311 - sample text
    for number in range(count):
        conversations = list(chats(random.choice(QUESTIONS), seed=number))
        yield [message for chat in conversations for message in chat if message["role"] != "system"]


def write_run(folder: Path, name: str, spec: RunSpec) -> None:
    """Write a run folder of one node, as the supervisor does; inputs are files below ``folder``."""
    rundir = RunDir(folder / name)
    rundir.root.mkdir()
    (rundir.root / "inputs").symlink_to(folder.resolve())
    rundir.run_spec.write_text(spec.to_json())
    generation = Generation(
        number=1,
        job_id=spec.job_id,
        attempt_id="att-bench",
        members=(Member(node_id="node-1", vm_id="vm-1", address="127.0.0.1", node_rank=0),),
        processes_per_node=spec.processes_per_node,
        master_address="127.0.0.1",
        master_port=0,
        checkpoint=None,
        run_spec_sha256=SPEC_SHA256,
    )
    rundir.generation.write_text(generation.to_json())
    rundir.ready.touch()


def input_file(folder: Path, path: Path) -> InputFile:
    """Return an input of a run spec; its hash is a placeholder, because no process verifies it."""
    name = str(path.relative_to(folder))
    return InputFile(path=name, size=path.stat().st_size, sha256="0" * 64)


if __name__ == "__main__":
    main()
