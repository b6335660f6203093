"""`python -m emulator`: serve until SIGTERM or SIGINT, and leave the VMs alone at the end."""

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Generator
from dataclasses import fields
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from emulator.app import arm, metadata_service
from emulator.core import catalog
from emulator.core.store import StateUnreadable, occupy
from emulator.core.tls import certificates
from emulator.fabric import EmulatorSettings, Fabric
from emulator.options import parser

LOOPBACK = "127.0.0.1"


class _CannotServe(Exception):
    """The folder or a port cannot be had; the text says what to do."""


class AbortableConnection(H11Protocol):
    """One whose requests can break it: `scope["state"]["hang_up"]()`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Give every request the means."""
        self.app_state = {**self.app_state, "hang_up": transport.abort}
        super().connection_made(transport)


class EmulatorServer(uvicorn.Server):
    """A server that leaves the signals to `main`, which has two of them to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def main() -> None:
    """Parse the command line and serve until told to end."""
    options = parser().parse_args()
    if options.catalog:
        catalog.add(options.catalog)
    try:
        asyncio.run(_serve(options))
    except (StateUnreadable, _CannotServe) as error:
        sys.exit(f"emulator: {error}")


async def _serve(options: argparse.Namespace) -> None:
    folder = _writable(options.state)
    with occupy(folder):
        await _serve_from(folder, options)


async def _serve_from(folder: Path, options: argparse.Namespace) -> None:
    names = [options.reachable_as] if options.reachable_as else []
    certificate, key = certificates(folder / "tls", *names)
    arm_host = "0.0.0.0" if names else LOOPBACK
    sockets = [
        _listen(arm_host, options.arm_port, "--arm-port"),
        _listen(LOOPBACK, options.metadata_port, "--metadata-port"),
    ]
    arm_port, metadata_port = (s.getsockname()[1] for s in sockets)
    settings = _settings(options, folder, arm_port)
    fabric = Fabric(settings, f"http://127.0.0.1:{metadata_port}", time.time)
    servers = [_server(arm(fabric), key), _server(metadata_service(fabric))]
    _end_on_signals(servers)
    running = [asyncio.create_task(s.serve([k])) for s, k in zip(servers, sockets, strict=True)]
    running.append(asyncio.create_task(fabric.run()))
    sys.stdout.write(
        f"emulator ready: ARM https://localhost:{arm_port} (CA {certificate}), "
        f"metadata http://127.0.0.1:{metadata_port}\n"
    )
    sys.stdout.flush()
    await _until_first(running)


def _writable(state: Path) -> Path:
    folder = state.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tls").mkdir(exist_ok=True)
    except OSError as error:
        why = f"{folder} cannot hold the state: {error.strerror}. Choose another --state."
        raise _CannotServe(why) from error
    return folder


def _listen(host: str, port: int, option: str) -> socket.socket:
    # Only where the protocol is named does asyncio send small answers at once (40 ms each).
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        why = f"port {port} cannot be had: {error.strerror}. Choose another {option}, or 0."
        raise _CannotServe(why) from error
    listener.listen(1024)  # from here on connections wait: the ready line is true
    return listener


def _settings(options: argparse.Namespace, folder: Path, arm_port: int) -> EmulatorSettings:
    # The second number keeps the VMs of two emulators on one machine apart.
    prefix = f"127.{64 + arm_port % 128}" if sys.platform == "linux" else ""
    names = {field.name for field in fields(EmulatorSettings)}
    values = {name: value for name, value in vars(options).items() if name in names}
    return EmulatorSettings(folder=folder, address_prefix=prefix, **values)


def _server(application: Starlette, certificate: Path | None = None) -> EmulatorServer:
    config = uvicorn.Config(
        application,
        http=AbortableConnection,
        ssl_certfile=certificate,
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # a caller is who connects
        timeout_graceful_shutdown=1,
    )
    return EmulatorServer(config)


def _end_on_signals(servers: list[EmulatorServer]) -> None:
    def end() -> None:
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)


async def _until_first(running: list[asyncio.Task[None]]) -> None:
    """Wait until a server ends or anything fails; then end the rest and say why."""
    servers = running[:-1]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    if not running[-1].done():
        await asyncio.gather(*servers)
    running[-1].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running[-1]


if __name__ == "__main__":
    main()
