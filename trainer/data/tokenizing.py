"""`python -m trainer.data.tokenizing RUNDIR` tokenizes a run's data for its later generations.

A child of the run's first rank, of the lowest priority: it works beside the training, which
does not wait for it, and ends with its parent.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from trainer.checksum import describe
from trainer.contract import InputFile, RunSpec
from trainer.data.tokens import FORMAT, Source, open_tokens, tokens_name
from trainer.rundir import RunDir, write_whole
from trainer.tokenizer import base_folder, load_tokenizer

LOWEST = "19"  # priority
POLL = 0.5  # seconds


def begin(rundir: RunDir, spec: RunSpec) -> None:
    """Have it done beside this process, unless an earlier generation has done it.

    Not before the first save: until then no later generation has anything to begin from.
    """
    if missing(rundir, spec):
        threading.Thread(target=_start_after_a_save, args=(rundir,), daemon=True).start()


def missing(rundir: RunDir, spec: RunSpec) -> list[InputFile]:
    """The data files whose tokens no earlier generation has left."""
    files = [spec.training_file, *([spec.validation_file] if spec.validation_file else [])]
    return [f for f in files if not (rundir.cache / tokens_name(spec, f)).exists()]


def _start_after_a_save(rundir: RunDir) -> None:
    pause = threading.Event()  # never set
    while not rundir.outbox.exists():
        pause.wait(POLL)
    command = ["nice", "-n", LOWEST, sys.executable, "-m", __name__, str(rundir.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        child.wait()


def write_tokens(source: Source, path: Path) -> None:
    """Write the tokens of every row; in memory there is one row at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with TemporaryFile(dir=path.parent) as ids, TemporaryFile(dir=path.parent) as trained:
        starts = array("q", _written(source, ids, trained))
        with part.open("wb") as whole:
            whole.write(_header(len(starts), starts[-1]))
            starts.tofile(whole)
            for column in (ids, trained):
                column.seek(0)
                shutil.copyfileobj(column, whole)
    part.replace(path)


def _written(source: Source, ids: IO[bytes], trained: IO[bytes]) -> Iterator[int]:
    """Write row after row; where each begins, and where the last one ends."""
    end = 0
    for number in range(len(source)):
        yield end
        row = source[number]
        array("i", row.ids).tofile(ids)
        trained.write(bytes(row.trained))
        end += len(row.ids)
    yield end


def _header(starts: int, tokens: int) -> bytes:
    """Of a safetensors file: the tensor with the widest type first, so that all lie aligned."""
    after_starts, after_ids = 8 * starts, 8 * starts + 4 * tokens
    tensors = {
        "__metadata__": {"format": FORMAT},
        "starts": {"dtype": "I64", "shape": [starts], "data_offsets": [0, after_starts]},
        "ids": {"dtype": "I32", "shape": [tokens], "data_offsets": [after_starts, after_ids]},
        "trained": {
            "dtype": "U8",
            "shape": [tokens],
            "data_offsets": [after_ids, after_ids + tokens],
        },
    }
    text = json.dumps(tensors).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _end_with_parent() -> None:
    """The parent holds our standard input open, and never writes to it."""
    os.read(0, 1)  # not sys.stdin: its lock, held at this process's end, would abort it
    os._exit(0)


def main() -> None:
    """Tokenize what is missing; each file's record appears once the file is whole."""
    parser = argparse.ArgumentParser(prog="python -m trainer.data.tokenizing", description=__doc__)
    parser.add_argument("rundir", type=Path)
    rundir = RunDir(parser.parse_args().rundir)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spec = RunSpec.from_json(rundir.run_spec.read_bytes())
    tokenizer = load_tokenizer(base_folder(rundir, spec.base_model))
    for file in missing(rundir, spec):
        path = rundir.cache / tokens_name(spec, file)
        source = open_tokens(path, rundir.input(file.path), tokenizer, spec.max_seq_len)
        try:
            write_tokens(source, path)
        except OSError:  # the room on a full disk is for checkpoints
            path.with_name(f".{path.name}.part").unlink(missing_ok=True)
            raise
        record = describe(path, path.name)
        write_whole(path.with_suffix(".json"), record.to_json())


if __name__ == "__main__":
    main()
