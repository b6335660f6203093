"""Each image's programs start from what its Dockerfile copies, and from nothing else of ours.

A folder stands in for the image, with an environment of its own: neither the checkout nor what is
installed of it is found there. Packages are the checkout's; `make images` builds the real thing.
"""

import ast
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from bench import ports
from service.preflight.graders import PROGRAM
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
SERVICE = {
    "REKINDLE_STORAGE": "UseDevelopmentStorage=true",
    "REKINDLE_PUBLIC_URL": "http://service",
    "REKINDLE_SECRET_KEY": "a secret that is long enough for the tests",
    "REKINDLE_DEPLOYMENT": "test",
    "REKINDLE_CLOUD": "fake",
    "REKINDLE_OFFERINGS": "Standard_ND96amsr_A100_v4@eastus",
}
# Imports every module below the packages that are named, but programs, which would run.
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(*sorted({m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)}))
"""


@dataclass(frozen=True)
class Image:
    """What the Dockerfiles of an image copy from the repository, below one folder."""

    folder: Path

    def run(
        self, *arguments: str, stdin: str = "", **settings: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run Python in it to its end, with that on its standard input."""
        return subprocess.run(
            [self._python, *arguments],
            cwd=self.folder,
            env=settings,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    @contextmanager
    def running(self, *arguments: str, **settings: str) -> Iterator[Path]:
        """Python in it, until the block ends; the file that it prints to."""
        log = self.folder / "log"
        with (
            log.open("wb") as output,
            subprocess.Popen(
                [self._python, *arguments],
                cwd=self.folder,
                env=settings,
                stdout=output,
                stderr=output,
            ) as process,
        ):
            try:
                yield log
            finally:
                process.terminate()

    @property
    def _python(self) -> str:
        return str(self.folder / "environment" / "bin" / "python")


@pytest.fixture
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Image:
    """Return the image that the Dockerfiles of these names make, one on top of the other."""
    for name in request.param:
        for sources, target in _copies((ROOT / "docker" / f"{name}.Dockerfile").read_text()):
            for source in sources:
                _copy(ROOT / source, tmp_path / target, into=target.endswith("/"))
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (environment / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    packages = environment / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    packages.mkdir(parents=True)
    # As in the image; the .pth files of a folder that is named here are not looked at.
    paths = [tmp_path / "rekindle", tmp_path / "code", sysconfig.get_path("purelib")]
    (packages / "rekindle.pth").write_text("".join(f"{path}\n" for path in paths))
    return Image(tmp_path)


@pytest.mark.parametrize("image", [("service",)], indirect=True, ids=["service"])
async def test_the_service_answers_from_its_image(image: Image, database_url: str) -> None:
    port = ports.free(1)
    settings = {**SERVICE, "REKINDLE_DATABASE_URL": database_url}
    with image.running("-m", "service.main", "all", "--port", str(port), **settings) as log:

        async def alive() -> str:
            try:
                async with httpx.AsyncClient(trust_env=False) as http:
                    return str((await http.get(f"http://127.0.0.1:{port}/livez")).status_code)
            except httpx.TransportError:
                return log.read_text()

        await until(alive, lambda output: output == "200" or "Traceback" in output)
        assert await alive() == "200"


@pytest.mark.parametrize(
    ("image", "packages"),
    [
        (("service",), ["service", "contract", "rendering", "trainer.graders"]),
        (("trainer", "local"), ["emulator", "rekindle", "docker"]),
        pytest.param(("trainer",), ["trainer", "rendering"], marks=pytest.mark.long),  # and torch
    ],
    indirect=["image"],
    ids=["service", "local", "trainer"],
)
def test_every_module_of_an_image_finds_what_it_imports(image: Image, packages: list[str]) -> None:
    completed = image.run("-c", IMPORT_ALL, *packages)

    assert completed.returncode == 0, completed.stderr
    assert str(image.folder) in completed.stdout
    assert not re.search(rf"{ROOT}/(?!\.venv/)", completed.stdout)  # nothing came from the checkout


@pytest.mark.parametrize("image", [("service",)], indirect=True, ids=["service"])
def test_the_service_grades_from_its_image(image: Image) -> None:
    grader = {
        "type": "string_check",
        "name": "x",
        "input": "a",
        "reference": "a",
        "operation": "eq",
    }
    grader_request = {"grader": grader, "model_sample": "a", "item": {}, "cpu_seconds": 60}

    completed = image.run("-m", PROGRAM, stdin=json.dumps(grader_request))

    assert json.loads(completed.stdout)["reward"] == 1.0, completed.stderr


@pytest.mark.parametrize("image", [("trainer",)], indirect=True, ids=["trainer"])
def test_the_supervisor_and_the_graders_start_from_the_trainers_image(image: Image) -> None:
    completed = image.run(
        "-m", "trainer.supervisor", REKINDLE_NODE_CONFIG=str(image.folder / "none")
    )
    help_run = image.run("-m", "trainer.graders", "--help")

    assert (completed.returncode, help_run.returncode) == (2, 0), completed.stderr + help_run.stderr
    assert "configuration.bad" in completed.stderr


@pytest.mark.parametrize("image", [("trainer",)], indirect=True, ids=["trainer"])
def test_the_trainers_image_has_every_package_of_ours_that_its_modules_name(image: Image) -> None:
    """Without importing torch, which takes ten seconds of a core."""
    folder_names = {path.name for path in (image.folder / "rekindle").iterdir()}
    package_names = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    referenced = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for source in image.folder.glob("rekindle/**/*.py")
        for node in ast.walk(ast.parse(source.read_bytes()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }

    assert (
        {name.partition(".")[0] for name in referenced} & package_names
        == folder_names
        == {"trainer", "rendering"}
    )


def _copies(dockerfile: str) -> Iterator[tuple[list[str], str]]:
    """Yield what of ours an image copies, and to where below /opt."""
    joined = dockerfile.replace("\\\n", " ")
    for arguments, target in re.findall(
        r"^COPY (?!--from)(.+) /opt/((?:rekindle|code)/\S*)$", joined, re.MULTILINE
    ):
        yield arguments.split(), target


def _copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target / source.name if into else target)
