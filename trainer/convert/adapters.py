"""LoRA adapters of a checkpoint: merged into the base's weights, and alone for peft."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from trainer.contract import Lora, RunSpec
from trainer.convert.shards import write_file
from trainer.convert.whole import FullParameters
from trainer.model.precision import import_uncompiled
from trainer.model.sequence_head import has_head

PREFIX = "base_model.model."  # what peft puts before the base's names
SAVED_MODULE = ".modules_to_save.default."
HEADS = ["classifier", "score"]  # peft's names for the one of a classifier
A, B = ".lora_A.default.weight", ".lora_B.default.weight"


def adapter_names(weights: Iterable[str]) -> Iterator[str]:
    """Yield the names of the adapters of these base weights."""
    for weight in weights:
        layer = PREFIX + weight.removesuffix(".weight")
        yield from (layer + A, layer + B)


def trained_head_name(weight: str) -> str:
    """Return the name of a new weight that is trained whole, such as a head."""
    layer, _, leaf = weight.rpartition(".")
    return PREFIX + layer + SAVED_MODULE + leaf


def trainable_names(weights: Iterable[str]) -> Iterator[str]:
    """Yield all names that may be trained for these weights."""
    for weight in weights:
        yield from (*adapter_names([weight]), trained_head_name(weight))


def merge_adapter(
    parameters: FullParameters, name: str, weight: torch.Tensor, lora: Lora
) -> torch.Tensor:
    """Return the base's weight with its adapter added in fp32, as the trainer's export does."""
    name_a, name_b = adapter_names([name])
    if name_a not in parameters.shapes:
        return weight
    # What the model computes with: masters rounded to the precision of the run.
    a = parameters.tensor(name_a, "master").to(weight.dtype).float()
    b = parameters.tensor(name_b, "master").to(weight.dtype).float()
    return (weight.float() + lora.alpha / lora.rank * (b @ a)).to(weight.dtype)


def write_adapter(
    parameters: FullParameters, spec: RunSpec, lora: Lora, dtype: torch.dtype, folder: Path
) -> None:
    """Write the folder that `PeftModel.from_pretrained` reads."""
    import_uncompiled()  # before peft does
    from peft import LoraConfig  # noqa: PLC0415 - a full fine-tune saves its import

    layers = [name.removesuffix(A) for name in parameters.shapes if name.endswith(A)]
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=sorted({layer.rpartition(".")[2] for layer in layers}),
        modules_to_save=HEADS if has_head(spec) else None,
        task_type="SEQ_CLS" if has_head(spec) else "CAUSAL_LM",
        base_model_name_or_path=spec.base_model.name,
        inference_mode=True,
    )
    config.save_pretrained(folder)
    sources = {
        name.replace(SAVED_MODULE, ".").replace(".default.", "."): name
        for name in parameters.shapes
    }
    shapes = {name: parameters.shapes[source] for name, source in sources.items()}
    path = folder / "adapter_model.safetensors"
    write_file(path, shapes, dtype, lambda name: parameters.tensor(sources[name], "master"))
