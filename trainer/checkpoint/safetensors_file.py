"""Read and lay out a rank's tensors as a safetensors file."""

import json
import mmap
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.checkpoint.partial_tensors import BlockState, PartialTensors
from trainer.contract import FileEntry
from trainer.model.safetensors_headers import encode_header

POLL_SECONDS = 0.01
_POLL = threading.Event()


def build_header(sizes: Mapping[str, int]) -> bytes:
    """Build the header of a file of one-dimensional fp32 tensors of these sizes, in order."""
    entries, at = {}, 0
    for name, numel in sizes.items():
        entries[name] = {"dtype": "F32", "shape": [numel], "data_offsets": [at, at + 4 * numel]}
        at += 4 * numel
    return encode_header(entries)


@dataclass(frozen=True)
class TensorLayout:
    """Header of a file, and the offset of each tensor."""

    beginning: bytes
    offsets: dict[str, int]  # of the first byte of each tensor in the file

    @staticmethod
    def of(beginning: bytes) -> "TensorLayout":
        """Parse the header."""
        entries = json.loads(beginning[8:])
        offsets = {n: len(beginning) + e["data_offsets"][0] for n, e in entries.items()}
        return TensorLayout(beginning, offsets)


class TensorsFile:
    """A mapped tensors file: each tensor is copied once, to its destination.

    The file may still be arriving. Then its layout is that of `build_header` for ``sizes``, and
    reads wait for missing blocks; if they never arrive, the supervisor ends this process.
    """

    def __init__(self, path: Path, entry: FileEntry, sizes: Mapping[str, int]) -> None:
        self._partial = None if path.exists() else PartialTensors(path, entry)
        self._maps: dict[BlockState, mmap.mmap] = {}
        self._checked = self._partial is None
        if self._partial is None:
            self._maps[BlockState.IN_PLACE] = mapped = _mapped(path)
            length = 8 + int.from_bytes(mapped[:8], "little")
            self.layout = TensorLayout.of(mapped[:length])
        else:
            self.layout = TensorLayout.of(build_header(sizes))

    def copy(self, begin: int, end: int, into: torch.Tensor) -> None:
        """Fill ``into`` with the elements in this byte range, as they arrive."""
        self._check()
        for at, stop, source in self._parts(begin, end):
            count = (stop - at) // 4
            elements = torch.frombuffer(source, dtype=torch.float32, offset=at, count=count)
            into.narrow(0, (at - begin) // 4, count).copy_(elements)

    def _check(self) -> None:
        if not self._checked:
            size = len(self.layout.beginning)
            header = b"".join(source[at:stop] for at, stop, source in self._parts(0, size))
            if header != self.layout.beginning:
                name = self._partial and self._partial.final_path.name
                raise ValueError(
                    f"the tensors of {name} do not lie as its index says; fetch the whole file"
                )
            self._checked = True

    def _parts(self, begin: int, end: int) -> Iterator[tuple[int, int, mmap.mmap]]:
        """Yield consecutive ranges that cover [begin, end), each with its map."""
        if self._partial is None:
            yield begin, end, self._maps[BlockState.IN_PLACE]
            return
        size = self._partial.entry.block_size
        while begin < end:
            stop = min(end, begin - begin % size + size)
            yield begin, stop, self._wait(self._partial, begin // size)
            begin = stop

    def _wait(self, partial: PartialTensors, block: int) -> mmap.mmap:
        while (mark := partial.block_state(block)) is BlockState.MISSING:
            _POLL.wait(POLL_SECONDS)
        if mark not in self._maps:
            self._maps[mark] = _mapped(
                partial.path if mark is BlockState.IN_PLACE else partial.spilled
            )
        return self._maps[mark]


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # torch wants it so
