"""`python -m rekindle.local.up`: the local stack in the foreground, until Ctrl-C or SIGTERM."""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from contract.choices import Engine
from contract.printable import printable_lines
from rekindle.local.layout import (
    BASE_MODELS,
    CLIENT,
    ENGINE_HELP,
    RESOURCE_GROUP,
    TENANT,
    StackLayout,
)
from rekindle.local.parts import MAX_RESTARTS
from rekindle.local.stack import create_sign_in_token, run_stack
from rekindle.local.state_folder import StackPorts, StackStartError, StateFolder


def main() -> int:
    """Parse arguments and run the stack."""
    parser = argparse.ArgumentParser(prog="make up", description=__doc__)
    parser.add_argument(
        "--state", type=Path, default=Path(".rekindle"), help="state folder of the stack"
    )
    parser.add_argument("--port", type=int, default=8080, help="first of four consecutive ports")
    parser.add_argument(
        "--spot-capacity",
        type=Path,
        metavar="FILE",
        help="file with Spot capacity over time; see docs/emulator.md",
    )
    parser.add_argument(
        "--model",
        choices=BASE_MODELS,
        action="append",
        help="base model to stage; repeatable; default: all",
    )
    parser.add_argument(
        "--engine",
        type=Engine,
        choices=list(Engine),
        action="append",
        help=f"{ENGINE_HELP}; repeatable",
    )
    parser.add_argument("--keep", action="store_true", help="keep emulated VMs running at exit")
    parser.add_argument(
        "--restarts",
        type=int,
        default=MAX_RESTARTS,
        help="maximum restarts of one part within a minute before the stack stops",
    )
    options = parser.parse_args()
    ports = StackPorts.starting_at(options.port)
    spot_capacity = options.spot_capacity and options.spot_capacity.resolve()
    layout = StackLayout(
        StateFolder(options.state.resolve()),
        ports,
        options.restarts,
        spot_capacity,
        models=tuple(options.model or BASE_MODELS),
        engines=tuple(options.engine or [Engine.SCALE_SET]),
    )
    try:
        asyncio.run(_run_until_signal(layout, keep_vms=options.keep))
    except StackStartError as error:
        _print_message(str(error))
        return 1
    return 0


async def _run_until_signal(layout: StackLayout, *, keep_vms: bool) -> None:
    """Run the stack until a signal, or until a part cannot be kept alive."""
    running = asyncio.create_task(_serve_stack(layout, keep_vms=keep_vms))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _stop_on_signal, running)
    try:
        await running
    except asyncio.CancelledError:
        _print_message("the local stack has stopped")


async def _serve_stack(layout: StackLayout, *, keep_vms: bool) -> None:
    _print_message("starting the local stack")
    async with run_stack(layout, _print_message, keep_vms=keep_vms) as runner:
        key = (layout.state / "api-key").read_text().strip()
        _print_text(ready_banner(layout, key, await create_sign_in_token(layout, runner)))
        await runner.wait_for_failure()


def ready_banner(layout: StackLayout, api_key: str, sign_in: str) -> str:
    """Return addresses, sign-in link, API key, and exports for clients, staging and `az`."""
    return f"""
Rekindle is up. State in {_short_path(layout.state.path)}, \
logs in {_short_path(layout.state / "logs")}, Ctrl-C stops the stack.

  Console         {layout.api_url}/#sign-in={sign_in}  (valid once, for 10 minutes)
  API             {layout.api_url}/v1
  Azure (ARM)     {layout.arm_url}
  Blob (Azurite)  {layout.blob_url}
  Metadata (VMs)  {layout.metadata_url}

For the openai client and curl:
  export OPENAI_BASE_URL={layout.api_url}/v1 OPENAI_API_KEY={api_key}

To stage another base model (python -m rekindle.stage):
  export REKINDLE_STORAGE='{layout.storage}'

For az:
  export AZURE_CONFIG_DIR={layout.state / "az"} REQUESTS_CA_BUNDLE={layout.ca}
  export AZURE_CORE_INSTANCE_DISCOVERY=false AZURE_CORE_COLLECT_TELEMETRY=false
  az cloud register -n rekindle --endpoint-resource-manager {layout.arm_url}
  az cloud set -n rekindle
  az login --service-principal -u {CLIENT} -p {layout.client_secret} --tenant {TENANT}
  az vmss list -g {RESOURCE_GROUP} -o table
"""


def _short_path(path: Path) -> str:
    cwd = Path.cwd()
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def _stop_on_signal(running: "asyncio.Task[None]") -> None:
    """Stop the stack at the first signal; ignore later ones, as the shutdown is in progress."""
    if not running.cancelling():
        _print_message("stopping the local stack")
        running.cancel()


def _print_message(text: str) -> None:
    _print_text(f"rekindle: {text}")


def _print_text(text: str) -> None:
    """Print, unless the reader is gone: the stack must still stop in order."""
    with contextlib.suppress(BrokenPipeError):
        print(printable_lines(text), flush=True)


if __name__ == "__main__":
    sys.exit(main())
