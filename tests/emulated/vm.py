"""One emulated VM without the emulator."""

from pathlib import Path
from typing import Any

from emulator.faults import harm
from emulator.machines.processes import MachineSpec, Processes, init_pid, kill
from tests.emulated.process import wait_for


class Vm:
    """A VM in a folder, and its processes; ``machine`` holds arguments of MachineSpec."""

    def __init__(self, folder: Path, **machine: Any) -> None:  # noqa: ANN401 - whatever Machine takes
        self.folder = folder
        self.url = f"http://127.0.0.1:1/vm/{folder}"
        self.processes = Processes()
        self._machine = machine

    def boot(self, *commands: str, images: dict[str, Any] | None = None) -> None:
        """Boot it with a shell script of these commands."""
        self.boot_from("\n".join(("#!/bin/sh", *commands)), images=images)

    def boot_from(self, user_data: str, images: dict[str, Any] | None = None) -> None:
        """Boot it with any user data."""
        machine = MachineSpec(
            folder=self.folder,
            user_data=user_data.encode(),
            metadata_url=self.url,
            host_name=f"vm-{self.folder.name}"[:64].replace("_", "-"),
            images=images or {},
            **self._machine,
        )
        self.processes.boot(machine)

    def kill(self, *, wipe: bool = True) -> None:
        """Kill it and wait for the end of its processes."""
        kill(self.folder, self.url, wipe=wipe)
        wait_for(self.processes.reap)  # its threads may end a moment later

    def harm(self, **changes: Any) -> None:  # noqa: ANN401 - whatever Harm has
        """Inject a fault, and wait until its init process has applied it."""
        current = harm.read(self.folder)
        for name, value in changes.items():
            setattr(current, name, value)
        harm.write(self.folder, current)
        if (pid := init_pid(self.folder)) is not None:
            harm.notify_vm(pid)
            wait_for(lambda: harm.obeyed(self.folder) >= current.change)

    def text(self, name: str) -> str:
        """Return the text of a file in the VM, once its last line is complete."""
        file = self.folder / name
        wait_for(lambda: file.exists() and file.read_text().endswith("\n"))
        return file.read_text()

    def number(self, name: str) -> int:
        """Return the process id that a program of the VM wrote to a file."""
        return int(self.text(name))

    def console(self) -> str:
        """Return the console output so far."""
        file = self.folder / "console.log"
        return file.read_text() if file.exists() else ""
