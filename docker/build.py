"""Build and test the images: `python -m docker.build`; docs/images.md has the options."""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

from docker import base, engine, sbom, tryout, tryout_stack
from docker.engine import ROOT, ContainerEngine, EngineError

VARIANTS = ("cpu", "cuda")


def main() -> int:
    """Build the requested images, print their sizes, and test them."""
    options = _options()
    found = engine.find(
        options.engine,
        confined=options.confined,
        secrets={"pip": options.pip_conf, "npm": options.npmrc},
        volumes=options.volume,
    )
    try:
        if options.bootstrap:
            options.base = base.make(found)
        _build(found, options)
        if not options.untried:
            _try(found, options)
    except EngineError as error:
        sys.stderr.write(f"images: {error}\n")
        return 1
    return 0


def _build(engine: ContainerEngine, options: argparse.Namespace) -> None:
    labels = [f"VERSION={_version()}", f"REVISION={_revision()}"]
    if options.base:
        labels.append(f"BASE={options.base}")
    image = f"rekindle-service:{options.tag}"
    engine.build("service.Dockerfile", image, labels)
    _describe(engine, image, ["service.txt"])
    for variant in options.trainer:
        image = f"rekindle-trainer:{options.tag}-{variant}"
        engine.build("trainer.Dockerfile", image, [*labels, f"ACCELERATOR={variant}"])
        _describe(engine, image, [f"torch-{variant}.txt", "trainer.txt"])
    if "cpu" in options.trainer:
        trainer = f"rekindle-trainer:{options.tag}-cpu"
        image = f"rekindle-local:{options.tag}"
        engine.build("local.Dockerfile", image, [f"TRAINER={trainer}"])
        locks = ["torch-cpu.txt", "trainer.txt", "local.txt", "../package-lock.json"]
        _describe(engine, image, locks)


def _try(engine: ContainerEngine, options: argparse.Namespace) -> None:
    tryout.service(engine, f"rekindle-service:{options.tag}")
    for variant in options.trainer:
        tryout.trainer(engine, f"rekindle-trainer:{options.tag}-{variant}")
    if "cpu" in options.trainer:
        tryout_stack.run_job(engine, options.tag)


def _describe(engine: ContainerEngine, image: str, locks: list[str]) -> None:
    _say_size(engine, image)
    sys.stdout.write(f"  contents: {sbom.write(engine, image, locks).relative_to(ROOT)}\n")


def _say_size(engine: ContainerEngine, image: str) -> None:
    """Print every non-empty layer, newest first."""
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
