"""The base model from its staged files, with adapters and gradient checkpointing as asked.

Only safetensors are read and no code of the model's is run: the files are untrusted.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.deepspeed import HfDeepSpeedConfig

from trainer.contract import BaseModel, Lora, RunSpec
from trainer.rundir import RunDir


def base_folder(rundir: RunDir, base: BaseModel) -> Path:
    """The folder where the files of the base model lie, or ValueError."""
    folders = {rundir.input(file.path).parent for file in base.files}
    if len(folders) != 1:
        raise ValueError(f"the files of {base.name} must lie in one folder, not {len(folders)}")
    return folders.pop()


def load_tokenizer(folder: Path) -> Any:  # noqa: ANN401 - transformers is untyped here
    """The base model's tokenizer; it must be a fast one and know a chat template."""
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if not tokenizer.is_fast or tokenizer.chat_template is None:
        raise ValueError("the base model needs a tokenizer.json and a chat template")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(folder: Path, spec: RunSpec, deepspeed_config: dict[str, Any]) -> Any:  # noqa: ANN401
    """The model to train, its weights still those of the base.

    Under ZeRO-3 every rank keeps its share only, from the start.
    """
    sharding = HfDeepSpeedConfig(deepspeed_config) if spec.zero_stage == 3 else None
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.bfloat16 if spec.precision == "bf16" else torch.float32,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    del sharding  # transformers looks for it while it lives
    if spec.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if spec.lora is not None:
        model = _with_adapters(model, spec.lora)
    return model


def _with_adapters(model: Any, lora: Lora) -> Any:  # noqa: ANN401
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - a full fine-tune saves its import

    return get_peft_model(
        model,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
        autocast_adapter_dtype=False,
    )
