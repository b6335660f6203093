"""Build the images and try them: `python -m docker.build`; docs/images.md has the options."""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

from docker import base, engine, tryout
from docker.engine import ROOT, Engine, EngineError

VARIANTS = ("cpu", "cuda")


def main() -> int:
    """Build what was asked for, say how large it became, and run it."""
    options = _options()
    found = engine.find(
        options.engine,
        confined=options.confined,
        secrets={"pip": options.pip_conf, "npm": options.npmrc},
        volumes=options.volume,
    )
    try:
        if options.bootstrap:
            base.make(found)
        _build(found, options)
        if not options.untried:
            tryout.service(found, f"rekindle-service:{options.tag}")
        for variant in () if options.untried else options.trainer:
            tryout.trainer(found, f"rekindle-trainer:{options.tag}-{variant}")
    except EngineError as error:
        sys.stderr.write(f"images: {error}\n")
        return 1
    return 0


def _build(engine: Engine, options: argparse.Namespace) -> None:
    labels = [f"VERSION={_version()}", f"REVISION={_revision()}"]
    if options.base:
        labels.append(f"BASE={options.base}")
    service = f"rekindle-service:{options.tag}"
    engine.build("service.Dockerfile", service, labels)
    _say_size(engine, service)
    for variant in options.trainer:
        tag = f"rekindle-trainer:{options.tag}-{variant}"
        engine.build("trainer.Dockerfile", tag, [*labels, f"ACCELERATOR={variant}"])
        _say_size(engine, tag)
    if "cpu" in options.trainer:
        trainer = f"TRAINER=rekindle-trainer:{options.tag}-cpu"
        engine.build("local.Dockerfile", f"rekindle-local:{options.tag}", [*labels, trainer])
        _say_size(engine, f"rekindle-local:{options.tag}")


def _say_size(engine: Engine, image: str) -> None:
    """Every layer that holds anything, the newest first."""
    rows = engine.ask("history", "--format", "{{.Size}}\t{{.CreatedBy}}", image).stdout
    sys.stdout.write(f"{image}\n")
    for row in rows.splitlines():
        size, _, made_by = row.partition("\t")
        if not size.startswith("0"):
            sys.stdout.write(f"  {size:>8}  {made_by[:80]}\n")


def _version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def _revision() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m docker.build", description=__doc__)
    add = parser.add_argument
    add("--engine", default="", help="docker or podman with its global options")
    add("--confined", action="store_true", help="podman in a machine that gives it few rights")
    add("--bootstrap", action="store_true", help="make the base image with debootstrap")
    add("--base", default="", help="another base image, or this one by digest")
    add(
        "--trainer",
        nargs="*",
        choices=VARIANTS,
        default=["cpu"],
        help="with cpu, compose.yaml's Azure too",
    )
    add("--tag", default="local")
    add("--npmrc", type=Path, help=".npmrc to build with; stays out of the image")
    add("--pip-conf", type=Path, help="pip.conf to build with; stays out of the image")
    add("--volume", action="append", default=[], help="podman: HOST:BUILD:ro while building")
    add("--untried", action="store_true", help="do not run what was built")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
