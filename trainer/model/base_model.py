"""Load the base model from its staged files; add adapters and gradient checkpointing.

Only safetensors are read and no code of the model is run: the files are untrusted.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers.modeling_utils  # noqa: F401 - half a second that a model would take later
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.integrations.deepspeed import HfDeepSpeedConfig

from trainer.contract import Lora, RunSpec
from trainer.model import attention, loading, precision, sequence_head
from trainer.model.actor_critic import ActorCritic
from trainer.model.precision import dtype_of
from trainer.model.tensor_names import NEW_HEADS
from trainer.process.non_retryable import NonRetryableError


def load_model(folder: Path, spec: RunSpec, deepspeed_config: dict[str, Any], pad_id: int) -> Any:  # noqa: ANN401
    """Load the model to train, with the base's weights; a classifier's head is new."""
    if sequence_head.has_head(spec):
        new = sequence_head.head_settings(spec, pad_id)
        model = _load(AutoModelForSequenceClassification, folder, spec, deepspeed_config, **new)
        model.config.use_cache = False  # nothing is generated; not all take it as an argument
        return _prepare_for_training(model, spec, "SEQ_CLS")
    model = _prepare_for_training(load_base(folder, spec, deepspeed_config), spec, "CAUSAL_LM")
    if not spec.has_critic:
        return model
    critic = _load_critic(folder, spec, deepspeed_config)
    return ActorCritic(model, _prepare_for_training(critic, spec, "TOKEN_CLS"))


def load_base(folder: Path, spec: RunSpec, deepspeed_config: dict[str, Any]) -> Any:  # noqa: ANN401
    """Load the base model, which predicts the next token."""
    return _load(AutoModelForCausalLM, folder, spec, deepspeed_config)


def _load_critic(folder: Path, spec: RunSpec, deepspeed_config: dict[str, Any]) -> Any:  # noqa: ANN401
    """Load the base model with a new head that gives each position a number."""
    config = AutoConfig.from_pretrained(folder, num_labels=1, local_files_only=True)
    config.classifier_dropout = 0.0  # a value that drops out is noise
    return _load(AutoModelForTokenClassification, folder, spec, deepspeed_config, config=config)


def _prepare_for_training(model: Any, spec: RunSpec, task: str) -> Any:  # noqa: ANN401
    """Add what the run spec asks for; ``task`` is peft's name of the head's task."""
    if spec.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if spec.lora is not None:
        return _with_adapters(model, spec.lora, task)
    freeze_parameters(model, spec)
    return model


def load_unquantized(folder: Path, spec: RunSpec, pad_id: int) -> Any:  # noqa: ANN401
    """Load the base model on the host, in the run's precision, not quantized."""
    plain = replace(spec, lora=None, gradient_checkpointing=False, packing=False, zero_stage=0)
    return load_model(folder, replace(plain, reinforcement=None), {}, pad_id)


def _load(
    kind: Any,  # noqa: ANN401
    folder: Path,
    spec: RunSpec,
    deepspeed_config: dict[str, Any],
    **settings: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Load a model; under ZeRO-3 every rank keeps only its shard.

    Raises NonRetryableError for a folder whose tensors do not make up the model.
    """
    new_head = kind is not AutoModelForCausalLM
    loading.require_complete(kind, folder, new_head=new_head, **settings)
    sharding = HfDeepSpeedConfig(deepspeed_config) if spec.zero_stage == 3 else None
    dtype = dtype_of(spec)
    quantized = spec.is_quantized
    skip_modules = NEW_HEADS if new_head else None
    model = loading.load_complete(
        kind,
        folder,
        new_head=new_head,
        dtype=dtype,
        attn_implementation=attention.NAME if spec.packing else None,
        **settings,
        **(precision.four_bit_options(dtype, skip_modules) if quantized else {}),
    )
    del sharding  # transformers looks for it while it lives
    precision.prevent_repacking(model)
    return model


def _with_adapters(model: Any, lora: Lora, task: str) -> Any:  # noqa: ANN401
    precision.import_uncompiled()  # before peft does
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - a full fine-tune saves its import

    return get_peft_model(
        model,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules="all-linear",
            exclude_modules=NEW_HEADS if task == "TOKEN_CLS" else None,  # peft spares SEQ_CLS' own
            task_type=task,
        ),
        autocast_adapter_dtype=False,
    )


def freeze_parameters(model: Any, spec: RunSpec) -> None:  # noqa: ANN401 - transformers is untyped here
    """Freeze what the run spec says; with adapters peft has frozen the base.

    A frozen parameter has no gradient, no optimizer state and no place in checkpoints: a resume
    loads it from the base model's files.
    """
    if spec.train_last_n_layers is not None:
        layers = _layers(model)
        if not 1 <= spec.train_last_n_layers <= len(layers):
            raise NonRetryableError(
                f"train_last_n_layers is {spec.train_last_n_layers}, but the base model has "
                f"{len(layers)} layers: ask for 1 to {len(layers)}"
            )
        for layer in layers[: -spec.train_last_n_layers]:
            layer.requires_grad_(False)
    if not spec.train_embeddings:
        model.get_input_embeddings().requires_grad_(False)


def require_freezable(spec: RunSpec) -> None:
    """Raise NonRetryableError where adapters freeze the base model already."""
    if spec.freezes and spec.lora is not None:
        raise NonRetryableError(
            "adapters freeze the whole base: leave out what else is to be frozen"
        )


def _layers(model: Any) -> Any:  # noqa: ANN401
    """Return the decoder's layers: the longest list of modules."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    if not lists:
        raise NonRetryableError("the base model has no list of layers; train all of it")
    return max(lists, key=len)
