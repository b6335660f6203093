"""`python -m trainer.convert --to hf|dcp|universal SOURCE TARGET`: convert a checkpoint.

SOURCE is a job's container as a URL with a SAS to read and list it, a copy of that container on
disk, or one checkpoint's folder. TARGET appears whole, or not at all. docs/checkpoint-format.md
describes each format.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")  # noqa: TID251 - else DeepSpeed looks for GPUs
os.environ["HF_HUB_OFFLINE"] = "1"  # noqa: TID251 - an entry point

from trainer.convert.source import CheckpointSource, find_checkpoint
from trainer.convert.whole import FullParameters
from trainer.process.disk_full import error_with_remedy
from trainer.supervisor.blob.container import BlobError
from trainer.supervisor.blob.transfer import CorruptError

TRY_AGAIN = 75  # EX_TEMPFAIL
FORMS = ("hf", "dcp", "universal")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and convert; on failure print one line and exit with status 1.

    TRY_AGAIN is the status for failures of the machine or the network.
    """
    options = _arguments(arguments)
    try:
        _convert(options)
    except ValueError as e:
        sys.exit(f"not converted: {e}")
    except (OSError, BlobError, CorruptError) as e:
        sys.stderr.write(f"not converted: {error_with_remedy(e)}\n")
        sys.exit(TRY_AGAIN)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source")
    parser.add_argument("target", type=Path)
    parser.add_argument("--to", required=True, choices=FORMS)
    parser.add_argument("--step", type=int, help="a committed step; without it the newest")
    parser.add_argument("--base", type=Path, help="folder of the base model's files, for hf")
    parser.add_argument("--run-spec", type=Path, help="where a lone checkpoint's run-spec.json is")
    return parser.parse_args(arguments)


def _convert(options: argparse.Namespace) -> None:
    if options.target.exists():
        raise ValueError(f"{options.target} exists; name a folder that does not")
    if options.to == "hf" and options.base is None:
        raise ValueError("a Hugging Face folder needs the base model: say where with --base FOLDER")
    options.target.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f".{options.target.name}-", dir=options.target.parent)
    try:
        source = find_checkpoint(
            options.source, Path(temporary) / "source", options.step, options.run_spec
        )
        staging = Path(temporary) / "part"
        staging.mkdir()
        _write(options, source, staging)
        staging.rename(options.target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sys.stdout.write(f"step {source.manifest.step} is in {options.target}\n")


def _write(options: argparse.Namespace, source: CheckpointSource, target: Path) -> None:
    """Convert; each format imports its own libraries, which take seconds."""
    parameters = FullParameters(source.folder, source.manifest)
    if options.to == "hf":
        from trainer.convert import hf  # noqa: PLC0415

        hf.write_hf(parameters, source.spec, options.base, target)
    elif options.to == "dcp":
        from trainer.convert import dcp  # noqa: PLC0415

        dcp.write_dcp(parameters, source.spec, target)
    else:
        from trainer.convert import universal  # noqa: PLC0415

        universal.write_universal(parameters, source.spec, target)


if __name__ == "__main__":
    main()
