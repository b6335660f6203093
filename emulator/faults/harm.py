"""What is done to one VM, as FOLDER/harm.json: the emulator writes it, the VM's init obeys it.

The file is the truth, so that neither a restart of the emulator nor one of the VM forgets it.
Standard library only: the VM's init imports it.
"""

import json
import os
import signal
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

MODES = ("drop", "reset")
WAKE_UP = signal.SIGURG  # does nothing to an init that has not got so far as to listen to it


@dataclass(kw_only=True)
class Harm:
    """All of it; as made, none."""

    cuts: dict[str, str] = field(default_factory=dict)  # pattern of HOST:PORT -> drop or reset
    write_limit: int = 0  # bytes per second to its disk; 0: as fast as it goes
    change: int = 0  # counts the changes of this file

    def cut(self, address: str) -> str:
        """Return the mode in which traffic with HOST:PORT is cut; empty if it is not."""
        host = address.rpartition(":")[0]
        for pattern, mode in self.cuts.items():
            if fnmatchcase(address, pattern) or fnmatchcase(host, pattern):
                return mode
        return ""


def read(folder: Path) -> Harm:
    """Read what is done to the VM of this folder."""
    try:
        return Harm(**json.loads((folder / "harm.json").read_text()))
    except FileNotFoundError:
        return Harm()


def write(folder: Path, harm: Harm) -> None:
    """Store it; `notify_vm` makes a running VM apply it."""
    harm.change += 1
    temporary = folder / "harm.new"
    temporary.write_text(json.dumps(asdict(harm)))
    temporary.replace(folder / "harm.json")


def notify_vm(pid: int) -> None:
    """Have the VM with this init read the file again."""
    os.kill(pid, WAKE_UP)


def obeyed(folder: Path) -> int:
    """Return the number of the last change that the VM's init applied."""
    try:
        return int((folder / "harm.obeyed").read_text() or 0)
    except FileNotFoundError:
        return 0


def obey(folder: Path, change: int) -> None:
    """Note that the init has applied a change."""
    (folder / "harm.obeyed").write_text(str(change))
