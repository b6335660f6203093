"""The base model from its staged files, with adapters and gradient checkpointing as asked.

Only safetensors are read and no code of the model's is run: the files are untrusted.
"""

from pathlib import Path
from typing import Any

import torch
import transformers.modeling_utils  # noqa: F401 - half a second that a model would take later
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.integrations.deepspeed import HfDeepSpeedConfig

from trainer import attention
from trainer.contract import Lora, RunSpec


def load_model(folder: Path, spec: RunSpec, deepspeed_config: dict[str, Any], pad_id: int) -> Any:  # noqa: ANN401
    """The model to train, its weights still those of the base; a reward model's head is new."""
    if spec.method == "reward":  # it reads the last token that is no padding
        new = {"num_labels": 1, "pad_token_id": pad_id}
        model = _load(AutoModelForSequenceClassification, folder, spec, deepspeed_config, **new)
    else:
        model = load_base(folder, spec, deepspeed_config)
    if spec.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if spec.lora is not None:
        model = _with_adapters(
            model, spec.lora, "SEQ_CLS" if spec.method == "reward" else "CAUSAL_LM"
        )
    return model


def load_base(folder: Path, spec: RunSpec, deepspeed_config: dict[str, Any]) -> Any:  # noqa: ANN401
    """The base model, which predicts the next token."""
    return _load(AutoModelForCausalLM, folder, spec, deepspeed_config)


def _load(
    kind: Any,  # noqa: ANN401
    folder: Path,
    spec: RunSpec,
    deepspeed_config: dict[str, Any],
    **settings: int,
) -> Any:  # noqa: ANN401
    """Under ZeRO-3 every rank keeps its share only, from the start."""
    sharding = HfDeepSpeedConfig(deepspeed_config) if spec.zero_stage == 3 else None
    model = kind.from_pretrained(
        folder,
        dtype=torch.bfloat16 if spec.precision == "bf16" else torch.float32,
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        attn_implementation=attention.NAME if spec.packing else None,
        **settings,
    )
    del sharding  # transformers looks for it while it lives
    return model


def _with_adapters(model: Any, lora: Lora, task: str) -> Any:  # noqa: ANN401
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - a full fine-tune saves its import

    return get_peft_model(
        model,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules="all-linear",
            task_type=task,
        ),
        autocast_adapter_dtype=False,
    )
