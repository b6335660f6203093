"""Run a job from submission to model with the built images and compose.yaml's commands.

The containers share one network namespace with only a loopback device, so that names and ports are
those of compose.yaml and nothing outside is reached. PostgreSQL is the one of `make setup`, over a
socket, not an image.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from docker.engine import ROOT, ContainerEngine
from docker.tryout import expect, give_to_user, health_check, print_ok, wait_until
from rekindle.local import postgres

HERE = ROOT / "docker"
SERVICES: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())["services"]
HOSTS = "127.0.0.1 localhost azurite emulator api\n"
CLIENT = f"{HERE}/first_job.py:/first_job.py:ro"


def run_job(engine: ContainerEngine, tag: str) -> None:
    """Start the services of compose.yaml in their order, train a tiny model, and stop."""
    service, local = f"rekindle-service:{tag}", f"rekindle-local:{tag}"
    alone = replace(engine, network="none")
    inside = replace(engine, network="container:rk-azurite")
    with ExitStack() as stack:
        azure, blobs = stack.enter_context(_volumes())
        options = stack.enter_context(_settings())

        def start(engine: ContainerEngine, name: str, *words: str) -> None:
            port = "8090" if name == "reconciler" else "8080"  # the api has 8080 here
            command = [word.replace("8080", port) for word in SERVICES[name]["command"]]
            stack.enter_context(engine.running(f"rk-{name}", *options, *words, *command))
            own = SERVICES[name].get("healthcheck")
            check = own["test"][1:] if own else health_check(engine, service)
            check = [word.replace(":8080/", f":{port}/") for word in check]
            wait_until(lambda: engine.ask("exec", f"rk-{name}", *check).returncode, 0)
            print_ok(f"stack: {name} is healthy")

        start(alone, "azurite", "--volume", f"{blobs}:/state", local)
        start(inside, "emulator", "--volume", f"{azure}:/state", local)
        state = (*options, "--volume", f"{azure}:/state")
        prepared = inside.run("rk-prepare", *state, local, *SERVICES["prepare"]["command"])
        expect("stack: a resource group and a base model are there", prepared, 0)
        expect("stack: migrate", inside.run("rk-migrate", *options, service, "migrate"), 0)
        for name in ("api", "reconciler"):
            start(inside, name, "--volume", f"{azure}:/state:ro", service)
        key = inside.run("rk-key", *options, service, "key", "create").stdout.split()[-1]
        submit = ("--volume", CLIENT, local, "python3", "/first_job.py", "http://api:8080", key)
        job = inside.run("rk-job", *options, *submit)
        if job.returncode:
            for name in ("emulator", "api", "reconciler"):
                print_ok(f"{name}: {inside.ask('logs', '--tail', '40', f'rk-{name}')}")
        expect("stack: a job trained its model", job, 0, "succeeded")


@contextmanager
def _volumes() -> Iterator[list[Path]]:
    """Create compose.yaml's volumes azure and blobs, writable for the containers' user."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("azure", "blobs")]
        for path in paths:
            path.mkdir()
            give_to_user(path)
        yield paths


@contextmanager
def _settings() -> Iterator[list[str]]:
    """Yield options for local.env and an empty PostgreSQL, whose socket every user may open."""
    with tempfile.TemporaryDirectory() as folder:
        data, sockets = Path(folder) / "postgres", Path(folder) / "sockets"
        hosts = Path(folder) / "hosts"
        hosts.write_text(HOSTS)
        postgres.create_cluster(data)
        sockets.mkdir()
        sockets.chmod(0o777)
        postgres.start_server(data, f"unix_socket_directories={sockets}")
        url = f"postgresql+psycopg://{postgres.SUPERUSER}@/postgres?host=/postgres"
        try:
            yield [
                *("--env-file", str(HERE / "local.env"), "--env", f"REKINDLE_DATABASE_URL={url}"),
                *("--volume", f"{sockets}:/postgres", "--volume", f"{hosts}:/etc/hosts:ro"),
            ]
        finally:
            postgres.stop_server(data)
