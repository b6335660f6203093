"""Recipes of the images: pinned, not root, scanned for updates, and in step with their code."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docker import lock
from service import console
from service.cloud.cloud_init import USER
from service.settings import Settings
from tests.repository.sources import ROOT, files, text
from trainer.supervisor.main import WORK_DIR

HERE = ROOT / "docker"
BUILT = "web/dist"  # by `make setup`, and in no commit
DOCKERFILES = sorted(HERE.glob("*.Dockerfile"))
SHIPPED = [file for file in DOCKERFILES if file.stem != "local"]
LOCKS = sorted(HERE.glob("*.txt"))
COMPOSE: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())
DIGEST = "@sha256:[0-9a-f]{64}"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(params=DOCKERFILES, ids=lambda file: file.stem)
def dockerfile(request: pytest.FixtureRequest) -> str:
    return Path(request.param).read_text()


@pytest.fixture(params=SHIPPED, ids=lambda file: file.stem)
def shipped(request: pytest.FixtureRequest) -> str:
    return Path(request.param).read_text()


def test_a_shipped_image_is_pinned_patched_and_stripped_and_says_whether_it_is_well(
    shipped: str,
) -> None:
    (base,) = re.findall(r"^ARG BASE=(\S+)$", shipped, re.MULTILINE)

    assert re.fullmatch(rf"debian:\d+\.\d+-slim{DIGEST}", base), "pinned to the byte"
    assert "FROM ${BASE} AS python" in shipped
    assert 'org.opencontainers.image.base.name="${BASE}"' in shipped
    assert "&& apt-get upgrade --yes \\\n && apt-get install" in shipped, "a base ages"
    assert "find / -xdev -type f -perm /6000 -exec chmod a-s {} +" in shipped, "su and mount"
    assert re.search(r'^ENTRYPOINT \["tini", "--", "python3", "-m", ', shipped, re.MULTILINE)
    assert "\nSTOPSIGNAL SIGTERM\n" in shipped
    assert len(re.findall(r"^HEALTHCHECK --interval", shipped, re.MULTILINE)) == 1


def test_the_database_of_the_compose_file_is_pinned_to_the_byte() -> None:
    assert re.fullmatch(rf"postgres:\S+{DIGEST}", COMPOSE["services"]["postgres"]["image"])


def test_both_images_stand_on_the_same_layers() -> None:
    stages = {_stage(file.read_text(), "${BASE} AS python") for file in SHIPPED}

    assert len(stages) == 1


def test_no_image_runs_as_root(dockerfile: str) -> None:
    last = dockerfile[dockerfile.rindex("\nFROM ") :]

    assert re.findall(r"^USER (\S+)$", last, re.MULTILINE)[-1] == USER


def test_the_nodes_disk_belongs_to_the_user_of_the_trainer_image() -> None:
    trainer = (HERE / "trainer.Dockerfile").read_text()

    assert f"--uid {USER.split(':')[0]} " in trainer
    assert f"--home-dir {WORK_DIR} " in trainer
    assert f'"trainer.supervisor.machine.liveness", "{WORK_DIR}"]' in trainer


def test_what_an_image_copies_is_there_and_is_let_through(dockerfile: str) -> None:
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = list(_copied(dockerfile))
    committed = {str(file) for file in files()} | {f"{BUILT}/index.html"}

    assert copied
    for source in copied:
        pattern = re.escape(source).replace(r"\$\{ACCELERATOR\}", "(cpu|cuda)")
        copied_files = [file for file in committed if re.fullmatch(f"{pattern}(/.*)?", file)]
        assert copied_files, source
        assert any(_lets_through(rule, file) for rule in allowed for file in copied_files), source


def test_the_service_image_has_nothing_that_runs_code_of_users() -> None:
    """Completeness: `tests/integration/service/test_image_programs.py`."""
    copied = {*_copied((HERE / "service.Dockerfile").read_text())}

    assert "trainer/graders/limited.py" in copied
    assert not {"trainer", "trainer/graders", "trainer/graders/sandbox"} & copied


def test_packages_come_by_hash_and_without_scripts_of_their_own(dockerfile: str) -> None:
    installs = re.findall(r"pip install((?:[^\n]*\\\n)*[^\n]*)", dockerfile)
    of_packages = [command for command in installs if "--requirement" in command]

    assert of_packages
    for command in of_packages:
        assert "--require-hashes" in command
        assert "--only-binary :all:" in command
        assert "--no-cache-dir" in command


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.stem)
def test_a_lock_file_pins_every_package_exactly_and_by_hash(file: Path) -> None:
    pins = lock.pins(file.read_text())

    assert pins
    for pin in pins:
        assert re.match(r"[\w.-]+==[\w.+]+ \\\n    --hash=sha256:[0-9a-f]{64}", pin)


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("service.txt", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["azureml"]),
        ("trainer.txt", PROJECT["optional-dependencies"]["trainer"]),
    ],
)
def test_the_lock_files_hold_what_pyproject_asks_for(name: str, requirements: list[str]) -> None:
    """Check the lock files; run `python -m docker.lock` when this fails."""
    pinned = _versions(name) | (_versions("torch-cuda.txt") if name == "trainer.txt" else {})
    for requirement in requirements:
        match = re.match(r"([\w.-]+)(?:\[[^]]*\])?(==|>=)([\w.]+)", requirement)
        assert match is not None, requirement
        package, relation, least = match.groups()
        version = pinned[_normal(package)]
        assert version == least if relation == "==" else _parts(version) >= _parts(least)


def test_both_variants_of_the_trainer_have_the_same_torch() -> None:
    cpu, cuda = (_versions(f"torch-{variant}.txt")["torch"] for variant in ("cpu", "cuda"))

    assert cpu == f"{cuda}+cpu"


def test_every_service_of_the_compose_file_waits_for_what_it_needs() -> None:
    services = COMPOSE["services"]

    assert set(services["api"]["depends_on"]) == {"postgres", "migrate", "prepare"}
    for name, service in services.items():
        for dependency, wait in service.get("depends_on", {}).items():
            healthy = wait["condition"] == "service_healthy"
            assert not healthy or "test" in services[dependency]["healthcheck"], name
            once = wait["condition"] == "service_completed_successfully"
            assert not once or services[dependency]["restart"] == "no", name


def test_every_process_of_the_service_is_asked_whether_it_can_do_its_work() -> None:
    """Check that the image's health check uses the port of each process."""
    (port,) = set(
        re.findall(r"http://127\.0\.0\.1:(\d+)/readyz", (HERE / "service.Dockerfile").read_text())
    )
    for name in ("api", "reconciler"):
        command = COMPOSE["services"][name]["command"]
        assert console.parse_arguments("", command).port == int(port), name
        assert "healthcheck" not in COMPOSE["services"][name]


def test_our_containers_may_write_nowhere_but_to_their_volumes() -> None:
    services = {name: s for name, s in COMPOSE["services"].items() if name != "postgres"}

    assert {name for name, service in services.items() if not service["read_only"]} == set()
    assert {name for name, service in services.items() if service["cap_drop"] != ["ALL"]} == set()


def test_commands_of_the_compose_file_exist() -> None:
    main = text(Path("service/main.py")) + text(Path("service/serving.py"))
    for name in ("migrate", "api", "reconciler"):
        assert f'"{COMPOSE["services"][name]["command"][0]}"' in main
    for name in ("emulator", "prepare"):
        module = COMPOSE["services"][name]["command"][2].replace(".", "/")
        assert (ROOT / f"{module}.py").exists() or (ROOT / module / "__main__.py").exists()
    for option in COMPOSE["services"]["emulator"]["command"][3:]:
        assert f'"{option.partition("=")[0]}"' in text(Path("emulator/options.py"))


def test_the_settings_of_the_compose_file_are_the_services() -> None:
    lines = [line for line in (HERE / "local.env").read_text().splitlines() if line[:1] != "#"]
    settings = dict(line.split("=", 1) for line in lines)
    values = {
        name.removeprefix("REKINDLE_").lower(): v for name, v in settings.items() if "REK" in name
    }
    images = json.loads((HERE / "images.json").read_text())

    assert set(values) <= set(Settings.model_fields)
    assert Settings(**values).trainer_image in images  # type: ignore[arg-type] # all are texts


def _stage(dockerfile: str, name: str) -> str:
    """Return the instructions of one stage."""
    body = dockerfile.split(f"FROM {name}\n")[1].split("\nFROM ", maxsplit=1)[0]
    return "\n".join(line for line in body.splitlines() if not line.startswith("#")).strip()


def _copied(dockerfile: str) -> Iterator[str]:
    """Yield the paths that are copied from the repository."""
    joined = dockerfile.replace("\\\n", " ")
    for arguments in re.findall(r"^COPY (?!--from)(.+)$", joined, re.MULTILINE):
        yield from arguments.split()[:-1]


def _lets_through(rule: str, file: str) -> bool:
    return bool(re.fullmatch(re.escape(rule).replace(r"\*", "[^/]*") + "(/.*)?", file))


def _versions(name: str) -> dict[str, str]:
    pins = (pin.split()[0].split("==") for pin in lock.pins((HERE / name).read_text()))
    return {_normal(package): version for package, version in pins}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
