"""One emulated VM without the emulator around it."""

from pathlib import Path
from typing import Any

from emulator.processes import Machine, Processes, kill
from tests.emulator_process import wait_for


class Vm:
    """A VM below a folder, and the handle that booted it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:1/vm/{folder}"
        self.processes = Processes()

    def boot(self, *commands: str, images: dict[str, Any] | None = None) -> None:
        """Boot it with a script."""
        script = "\n".join(("#!/bin/sh", *commands)).encode()
        machine = Machine(
            folder=self.folder, user_data=script, metadata_url=self.url, images=images or {}
        )
        self.processes.boot(machine)

    def kill(self) -> None:
        """Kill it."""
        kill(self.folder, self.url)
        self.processes.reap()

    def number(self, name: str) -> int:
        """The process id that a program of the VM wrote down."""
        file = self.folder / name
        return int(wait_for(lambda: file.exists() and file.read_text().strip()))
