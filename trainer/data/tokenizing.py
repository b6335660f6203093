"""`python -m trainer.data.tokenizing RUNDIR` tokenizes a run's data for its later generations.

Runs as a child of the run's first rank, at low priority. Training does not wait for it, and it ends
with its parent. Finished files stay on the node.
"""

import argparse
import logging
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

from trainer.checkpoint.checksum import describe_file
from trainer.contract import InputFile, RunSpec
from trainer.data.token_cache import FORMAT, RECORD, data_files, tokens_name
from trainer.data.tokens import TokenSource, open_tokens
from trainer.model.safetensors_headers import encode_header
from trainer.model.tokenizer import base_folder, load_tokenizer
from trainer.rundir import RunDir, write_atomically

NICE = "5"  # a third of a full share where all processors train: it comes to an end there, too

log = logging.getLogger("trainer")


def start_tokenizing(rundir: RunDir, spec: RunSpec) -> None:
    """Start tokenizing in a child process, unless an earlier generation has done it."""
    if missing_token_files(rundir, spec):
        threading.Thread(target=_run_tokenizer, args=(rundir,), daemon=True).start()


def missing_token_files(rundir: RunDir, spec: RunSpec) -> list[InputFile]:
    """Return the data files that no earlier generation has tokenized."""
    return [f for f in data_files(spec) if not (rundir.cache / tokens_name(spec, f)).exists()]


def _run_tokenizer(rundir: RunDir) -> None:
    command = ["nice", "-n", NICE, sys.executable, "-m", __name__, str(rundir.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        child.wait()


def write_tokens(source: TokenSource, path: Path) -> None:
    """Write the tokens of every row, with one row in memory.

    Raises OSError when the disk is full, or when the trainer has deleted the file for a save.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.made")  # while `.part` is what the supervisor fetches
    with (
        temporary.open("wb") as output,
        TemporaryFile(dir=path.parent) as ids,
        TemporaryFile(dir=path.parent) as trained,
    ):
        starts = array("q", _write_rows(source, temporary, ids, trained))
        output.write(_header(len(starts), starts[-1]))
        starts.tofile(output)
        for column in (ids, trained):
            column.seek(0)
            shutil.copyfileobj(column, output)
        output.flush()
        os.fsync(output.fileno())  # it may outlive this generation
    temporary.replace(path)


def _write_rows(
    source: TokenSource, temporary: Path, ids: IO[bytes], trained: IO[bytes]
) -> Iterator[int]:
    """Write row after row; yield the offset of each, and the end of the last one."""
    end = 0
    for number in range(len(source)):
        if not temporary.exists():
            raise FileNotFoundError("the trainer has made room on the disk")
        yield end
        row = source[number]
        array("i", row.ids).tofile(ids)
        trained.write(bytes(row.trained))
        end += len(row.ids)
    yield end


def _header(starts: int, tokens: int) -> bytes:
    """Build the safetensors header; the widest type comes first, so that all are aligned."""
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
    return encode_header(tensors)


def _end_with_parent() -> None:
    """Exit when the parent closes our standard input."""
    os.read(0, 1)  # not sys.stdin: its lock, held at this process's end, would abort it
    os._exit(0)


def main() -> None:
    """Tokenize the missing files; a file's record appears once the file is whole."""
    parser = argparse.ArgumentParser(prog="python -m trainer.data.tokenizing", description=__doc__)
    parser.add_argument("rundir", type=Path)
    rundir = RunDir(parser.parse_args().rundir)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(message)s")
    spec = RunSpec.from_json(rundir.run_spec.read_bytes())
    tokenizer = load_tokenizer(base_folder(rundir, spec.base_model), spec.method)
    for file in missing_token_files(rundir, spec):
        path = rundir.cache / tokens_name(spec, file)
        try:
            write_tokens(open_tokens(path, rundir.input(file.path), tokenizer, spec), path)
            write_atomically(path.with_suffix(RECORD), describe_file(path, path.name).to_json())
        except (OSError, ValueError) as e:  # a full disk, or a row that the training will name
            path.with_name(f".{path.name}.made").unlink(missing_ok=True)
            log.warning("%s: its tokens are not kept: %s", file.name, e)


if __name__ == "__main__":
    main()
