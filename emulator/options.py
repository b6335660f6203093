"""The command line: what may be said, in which unit, and what is wrong with what cannot be."""

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from emulator.capacity.entries import read
from emulator.core import catalog
from emulator.core.errors import ArmError

DESCRIPTION = (
    "Azure on localhost: Resource Manager with virtual machine scale sets, Spot, Scheduled Events "
    "and capacity. Ctrl-C ends it and leaves its VMs running; the next start with the same --state "
    "finds them again. Read docs/emulator.md."
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    argument_parser = argparse.ArgumentParser(
        prog="python -m emulator",
        usage="python -m emulator --state DIR --arm-port PORT --metadata-port PORT [OPTION ...]",
        description=DESCRIPTION,
    )
    add = argument_parser.add_argument
    add(
        "--state", type=Path, required=True, metavar="DIR", help="holds everything; made if need be"
    )
    add("--arm-port", type=_port, required=True, metavar="PORT", help="of ARM; 0 picks a free one")
    add(
        "--metadata-port",
        type=_port,
        required=True,
        metavar="PORT",
        help="of the metadata service and of /_emulator by plain http; 0 picks a free one",
    )
    add("--reachable-as", metavar="NAME", default="", help="let other machines in, under this name")
    _add_azure(argument_parser)
    _add_time(argument_parser)
    _add_machines(argument_parser)
    return argument_parser


def _add_azure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what Azure allows and has").add_argument
    add("--access", choices=("open", "enforced"), default="open", help="whether roles count (open)")
    add("--spot-quota", type=_count, default=1000, metavar="CORES", help="in each region (1000)")
    add("--azureml-quota", type=_count, default=1000, metavar="CORES", help="of Azure ML (1000)")
    add("--throttling", choices=("none", "azure"), default="none", help="Azure's limits (none)")
    add(
        "--spot-capacity",
        type=_capacity,
        metavar="FILE",
        help="Spot machines over time: a JSON list",
    )
    add("--catalog", type=_catalog, metavar="FILE", help="more sizes, regions and prices; JSON")
    add("--page-size", type=_some, default=100, metavar="N", help="rows on a page of a list (100)")
    add("--blob-endpoint", type=_url, default="", metavar="URL", help="an Azurite's, no account")
    add("--blob-key", default="", metavar="KEY", help="of every storage account; base64")
    log = "requests kept (1000)"
    add("--requests-log", dest="requests_kept", type=_count, default=1000, metavar="N", help=log)


def _add_time(parser: argparse.ArgumentParser) -> None:
    time = parser.add_argument_group("time and luck; SECONDS are the emulator's, see --speed")
    for name, default, help_text in (
        ("--create-seconds", 3.0, "how long an allocation takes (3)"),
        ("--delete-seconds", 2.0, "how long a delete takes (2)"),
        ("--notice-seconds", 30.0, "from the notice of an eviction to its end (30)"),
        ("--cost-delay-seconds", 8 * 3600.0, "until Cost Management tells a cost (28800)"),
        ("--first-events-call-seconds", 0.0, "of a VM's first question for events (0)"),
    ):
        time.add_argument(name, type=_seconds, default=default, metavar="SECONDS", help=help_text)
    time.add_argument("--speed", type=_speed, default=1.0, metavar="TIMES", help="60: minutes fly")
    time.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed, same luck")


def _add_machines(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("virtual machines").add_argument
    form = 'JSON: {"IMAGE": {"command": [...], "env": {...}}}'
    add("--images", type=_images, default={}, metavar="FILE", help=f"what containers run; {form}")
    add("--hollow", action="store_true", help="they run nothing: thousands of them can be")
    add("--proxies", action="store_true", help="their traffic goes by proxies and can be cut")


def _number(
    kind: Callable[[str], Any], fits: Callable[[Any], bool], description: str, text: str
) -> Any:  # noqa: ANN401 - int or float
    try:
        if fits(value := kind(text)):
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"must be {description}, not {text!r}")


_port = partial(_number, int, lambda n: 0 <= n < 65536, "a port from 0 to 65535")
_count = partial(_number, int, lambda n: n >= 0, "a whole number of 0 or more")
_some = partial(_number, int, lambda n: n >= 1, "a whole number of 1 or more")
_seconds = partial(_number, float, lambda n: 0 <= n < math.inf, "a number of seconds, 0 or more")
_speed = partial(_number, float, lambda n: 0 < n < math.inf, "a number above 0, such as 60")


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = not text or (parts.scheme in ("http", "https") and bool(parts.hostname))
    except ValueError:
        good = False
    if not good:
        expected = "an address such as http://127.0.0.1:10000"
        raise argparse.ArgumentTypeError(f"must be {expected}, not {text!r}")
    return text


def _images(text: str) -> dict[str, Any]:
    try:
        images = json.loads(Path(text).read_text())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read: {error}") from error
    if not isinstance(images, dict) or not all(map(_runs, images.values())):
        form = '{"IMAGE": {"command": ["python", "-m", "mine"], "env": {"NAME": "value"}}}'
        raise argparse.ArgumentTypeError(f"{text} must be a JSON object like {form}")
    return images


def _runs(image: object) -> bool:
    """Whether this says what stands for a container image."""
    if not isinstance(image, dict) or not isinstance(command := image.get("command"), list):
        return False
    strings, env = [*command], image.get("env", {})
    return isinstance(env, dict) and all(isinstance(w, str) for w in [*strings, *env.values()])


def _catalog(text: str) -> Path:
    try:
        catalog.read(Path(text))
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, AttributeError) as error:
        why = f"{text} has not the form of emulator/core/catalog.json: {error!r}"
        raise argparse.ArgumentTypeError(why) from error
    return Path(text)


def _capacity(text: str) -> Path:
    try:
        read(Path(text))
    except ArmError as error:
        raise argparse.ArgumentTypeError(error.message) from error
    return Path(text)
