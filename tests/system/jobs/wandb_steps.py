"""Prints the steps in the files of offline runs of wandb below a folder; its python has wandb."""

import json
import struct
import sys
from importlib import import_module
from pathlib import Path

HEADER = 7  # bytes of the file's, and of each record's: CRC-32, length, type (LevelDB's log)


def steps(data: bytes) -> list[int]:
    """Return the steps of one file of less than a block, which is 32 KiB."""
    message, numbers, at = import_module("wandb.proto.wandb_internal_pb2").Record, [], HEADER
    while at + HEADER <= len(data):
        _, size, _ = struct.unpack_from("<IHB", data, at)
        record = message()
        record.ParseFromString(data[at + HEADER : at + HEADER + size])
        at += HEADER + size
        if record.WhichOneof("record_type") == "history":
            numbers.append(record.history.step.num)
    return numbers


if __name__ == "__main__":
    files = sorted(Path(sys.argv[1]).glob("wandb/offline-run-*/*.wandb"))
    sys.stdout.write(json.dumps([step for file in files for step in steps(file.read_bytes())]))
