"""Azure on localhost: `python -m emulator --state DIR --arm-port N --metadata-port M`.

Ends on SIGTERM and SIGINT without touching the VMs; the next start with the same state
finds them again.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import sys
import time
from collections.abc import Generator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from emulator.app import arm, metadata_service
from emulator.fabric import Fabric, Settings
from emulator.tls import certificates

LOOPBACK = "127.0.0.1"


class Connection(H11Protocol):
    """One whose requests can break it: `scope["state"]["hang_up"]()`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Give every request the means."""
        self.app_state = {**self.app_state, "hang_up": transport.abort}
        super().connection_made(transport)


class Server(uvicorn.Server):
    """A server that leaves the signals to `main`, which has two of them to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def main() -> None:
    """Parse the command line and serve until told to end."""
    options = _options()
    asyncio.run(_serve(options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m emulator", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder that holds everything")
    parser.add_argument("--arm-port", type=int, required=True, help="0 picks a free one")
    parser.add_argument("--metadata-port", type=int, required=True, help="0 picks a free one")
    parser.add_argument(
        "--reachable-as", metavar="NAME", default="", help="let other machines in, under this name"
    )
    parser.add_argument("--images", type=Path, help='JSON: {"IMAGE": {"command": [], "env": {}}}')
    parser.add_argument("--create-seconds", type=float, default=3.0)
    parser.add_argument("--delete-seconds", type=float, default=2.0)
    parser.add_argument("--notice-seconds", type=float, default=30.0)
    parser.add_argument("--spot-quota", type=int, default=1000, help="Spot cores per region")
    parser.add_argument("--page-size", type=int, default=100)
    return parser.parse_args()


async def _serve(options: argparse.Namespace) -> None:
    folder = options.state.resolve()
    names = [options.reachable_as] if options.reachable_as else []
    certificate, key = certificates(folder / "tls", *names)
    arm_host = "0.0.0.0" if names else LOOPBACK
    sockets = [_listen(arm_host, options.arm_port), _listen(LOOPBACK, options.metadata_port)]
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


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1024)  # from here on connections wait: the ready line is true
    return listener


def _settings(options: argparse.Namespace, folder: Path, arm_port: int) -> Settings:
    # The second number keeps the VMs of two emulators on one machine apart.
    prefix = f"127.{64 + arm_port % 128}" if sys.platform == "linux" else ""
    return Settings(
        folder=folder,
        images=json.loads(options.images.read_text()) if options.images else {},
        create_seconds=options.create_seconds,
        delete_seconds=options.delete_seconds,
        notice_seconds=options.notice_seconds,
        spot_quota=options.spot_quota,
        page_size=options.page_size,
        address_prefix=prefix,
    )


def _server(application: Starlette, certificate: Path | None = None) -> Server:
    config = uvicorn.Config(
        application,
        http=Connection,
        ssl_certfile=certificate,
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    return Server(config)


def _end_on_signals(servers: list[Server]) -> None:
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
