"""The `docker` of an emulated VM: `run`, `pull`, with images that are commands of this machine.

`docker start --all` is what docker's daemon does when the VM boots again.

Run as a plain file by an isolated interpreter, to start in milliseconds: standard library only,
nothing of the emulator.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SWITCHES = {"--rm", "-d", "--detach", "--read-only"}
IGNORED = {
    *("--network", "--ipc", "--gpus", "--shm-size", "--ulimit", "--stop-timeout"),
    *("--log-driver", "--cap-add", "--cap-drop", "--device"),
    *("--security-opt", "--pids-limit", "--tmpfs"),
}
VALUED = {"--name", "--restart", "-v", "--volume", "-e", "--env", "--env-file", "--entrypoint"}
RESTARTS = ("always", "unless-stopped", "on-failure")
CANNOT_RUN = 125  # docker's own exit code when the container never began
# What the VM has and a container is to have as well; never stored, as a boot changes it.
OF_THE_VM = {
    *("LD_PRELOAD", "FAKETIME_TIMESTAMP_FILE", "FAKETIME_CACHE_DURATION"),
    *("FAKETIME_DONT_FAKE_MONOTONIC", "http_proxy", "https_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
}
FIRST_BACKOFF, LAST_BACKOFF, SETTLED = 0.1, 60.0, 10.0  # seconds, as docker's daemon


def main(folder: Path, arguments: list[str]) -> int:
    """Carry out one docker command line inside the VM of ``folder``."""
    command, *options = arguments or [""]
    if command == "run":
        return _run(folder, options)
    if command == "pull":
        return _pull(folder, options)
    if [command, *options[:1]] == ["image", "inspect"]:
        return _inspect(folder, options[-1])
    if [command, *options] == ["start", "--all"]:
        return _start_all(folder)
    supported = "'run', 'pull' and 'image inspect'"
    return _fail(f"docker: the emulator has only {supported}, not {command!r}", 1)


def _run(folder: Path, arguments: list[str]) -> int:
    flags, image, args = _parse(arguments)
    vm = json.loads((folder / "vm.json").read_text())
    image_spec = vm["images"].get(image)
    if image_spec is None:
        print(f"Unable to find image '{image}' locally", file=sys.stderr)  # noqa: T201
        return _fail(
            f"docker: Error response from daemon: pull access denied for {image}, repository does "
            "not exist or may require 'docker login'. (Name it in the emulator's --images file.)"
        )
    if not _is_pulled(folder, image) and (why := _planted(vm, image)):
        print(f"Unable to find image '{image}' locally", file=sys.stderr)  # noqa: T201
        return _fail(f"docker: {why}")
    mounts = _mounts(folder, _all(flags, "-v", "--volume"))
    entrypoint = _all(flags, "--entrypoint")
    command = [*(entrypoint[-1:] or image_spec["command"]), *args]
    container: dict[str, Any] = {
        "command": [_map_mounts(argument, mounts) for argument in command],
        "environment": _environment(folder, vm, image_spec, flags, mounts),
        "restart": (_all(flags, "--restart") or ["no"])[-1],
    }
    if "-d" in flags or "--detach" in flags:
        name = (_all(flags, "--name") or [f"c{os.getpid()}"])[-1]
        if container["restart"].startswith(RESTARTS):
            _note(folder, container, name)
        _detach(folder, container, name)
        print(name)  # noqa: T201
        return 0
    if container["restart"].startswith(RESTARTS):
        return run_with_restarts(container)
    return _exec(container)


def _parse(arguments: list[str]) -> tuple[dict[str, list[str]], str, list[str]]:
    """Split into flags with their values, the image, and the arguments after it."""
    flags: dict[str, list[str]] = {}
    pending = list(arguments)
    while pending and pending[0].startswith("-"):
        flag, equals, value = pending.pop(0).partition("=")
        if flag in SWITCHES:
            if value != "false":
                flags.setdefault(flag, [])
        elif flag in IGNORED | VALUED:
            if not equals and not pending:
                sys.exit(_fail(f"docker: flag needs an argument: {flag}"))
            flags.setdefault(flag, []).append(value if equals else pending.pop(0))
        else:
            sys.exit(_fail(f"docker: unknown flag: {flag} (the emulator knows only a few)"))
    if not pending:
        sys.exit(_fail('docker: "docker run" requires at least 1 argument: the image'))
    return flags, pending[0], pending[1:]


def _all(flags: dict[str, list[str]], *names: str) -> list[str]:
    return [value for name in names for value in flags.get(name, ())]


def _mounts(folder: Path, volumes: list[str]) -> list[tuple[str, str]]:
    """(path in the container, path on this machine), the longest first; made where missing."""
    mounts = []
    for volume in volumes:
        host, _, target = volume.partition(":")
        inside = target.partition(":")[0]
        if not host.startswith("/") or not inside.startswith("/"):
            sys.exit(_fail(f"docker: the emulator mounts absolute paths only, not {volume!r}"))
        real = _path_in(folder, host)
        if not real.exists():
            real.mkdir(parents=True)
        mounts.append((inside.rstrip("/"), str(real)))
    return sorted(mounts, key=lambda mount: -len(mount[0]))


def _path_in(folder: Path, path: str) -> Path:
    """Return a path of the VM as it is on this machine; one that is mapped already stays."""
    root = folder / "fs"
    return Path(path) if Path(path).is_relative_to(root) else root / path.lstrip("/")


def _map_mounts(argument: str, mounts: list[tuple[str, str]]) -> str:
    """Map a mounted path at the beginning of a word, or after its '=', to this machine."""
    name, equals, value = argument.partition("=")
    if equals and name.startswith("-"):
        return f"{name}={_map_mounts(value, mounts)}"
    for inside, real in mounts:
        if argument == inside or argument.startswith(inside + "/"):
            return real + argument[len(inside) :]
    return argument


def _environment(
    folder: Path,
    vm: dict[str, Any],
    image: dict[str, Any],
    flags: dict[str, list[str]],
    mounts: list[tuple[str, str]],
) -> dict[str, str]:
    """Return the container's environment: the image's, then --env-file, then -e."""
    pairs = list(image.get("env", {}).items())
    for file in _all(flags, "--env-file"):
        lines = _path_in(folder, file).read_text().splitlines()
        pairs += [_pair(line) for line in lines if line.strip() and not line.startswith("#")]
    pairs += [_pair(assignment) for assignment in _all(flags, "-e", "--env")]
    return {
        "PATH": vm["path"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "REKINDLE_METADATA_URL": vm["metadata_url"],
    } | {name: _map_mounts(value, mounts) for name, value in pairs}


def _pair(assignment: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    return name, value if equals else os.environ.get(name, "")


def _note(folder: Path, container: dict[str, Any], name: str) -> None:
    """Remember a container that is to run again after a boot."""
    target_folder = folder / "docker"
    target_folder.mkdir(exist_ok=True)
    temporary = target_folder / f"{name}.new"
    temporary.write_text(json.dumps(container))
    temporary.replace(target_folder / f"{name}.json")


def _start_all(folder: Path) -> int:
    for file in sorted((folder / "docker").glob("*.json")):
        _detach(folder, json.loads(file.read_text()), file.stem)
    return 0


def _detach(folder: Path, container: dict[str, Any], name: str) -> None:
    logs = folder / "containers"
    logs.mkdir(exist_ok=True)
    keeper = [sys.executable, "-I", "-S", __file__, "--keep", json.dumps(container)]
    restarts = container["restart"].startswith(RESTARTS)
    with (logs / f"{name}.log").open("ab") as log:
        subprocess.Popen(
            keeper if restarts else container["command"],
            env=_inner(container),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _inner(container: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a container, with few variables of the VM's own."""
    inherited = {name: value for name, value in os.environ.items() if name in OF_THE_VM}
    environment: dict[str, str] = inherited | container["environment"]
    return environment


def run_with_restarts(container: dict[str, Any]) -> int:
    """Run the container again and again as its restart policy says."""
    policy, _, most = container["restart"].partition(":")
    backoff, failures = FIRST_BACKOFF, 0
    while True:
        start = time.monotonic()
        code = subprocess.run(container["command"], env=_inner(container), check=False).returncode
        failures += code != 0
        if policy == "on-failure" and (code == 0 or (most and failures > int(most))):
            return code
        backoff = FIRST_BACKOFF if time.monotonic() - start > SETTLED else backoff
        time.sleep(backoff)
        backoff = min(backoff * 2, LAST_BACKOFF)


def _exec(container: dict[str, Any]) -> int:
    program = container["command"][0]
    try:
        os.execvpe(program, container["command"], _inner(container))  # noqa: S606
    except FileNotFoundError:
        return _fail(f"docker: exec: {program!r}: executable file not found in $PATH", 127)


def _pull(folder: Path, arguments: list[str]) -> int:
    vm = json.loads((folder / "vm.json").read_text())
    image = next((argument for argument in arguments if not argument.startswith("-")), "")
    if why := _planted(vm, image):
        return _fail(why, 1)
    if image not in vm["images"]:
        return _fail(
            f"Error response from daemon: manifest for {image} not found: manifest unknown", 1
        )
    with (folder / "pulled").open("a") as pulled:
        pulled.write(f"{image}\n")
    print(f"Status: Image is up to date for {image}")  # noqa: T201
    return 0


def _inspect(folder: Path, image: str) -> int:
    """Whether the image is on this machine: a fresh one has none."""
    if not _is_pulled(folder, image):
        return _fail(f"Error response from daemon: No such image: {image}", 1)
    print(json.dumps([{"RepoTags": [image]}]))  # noqa: T201
    return 0


def _is_pulled(folder: Path, image: str) -> bool:
    pulled = folder / "pulled"
    return pulled.exists() and image in pulled.read_text().splitlines()


def _planted(vm: dict[str, Any], image: str) -> str:
    """Return what docker prints if a planted fault fails the pull; "" without one."""
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - slow to load
    from urllib.parse import quote, urlsplit  # noqa: PLC0415 - the same

    url = urlsplit(vm["metadata_url"])
    line = HTTPConnection(url.netloc, timeout=10)
    try:
        line.request("GET", f"{url.path}/pull?image={quote(image)}")
        answer = line.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    except (OSError, HTTPException):
        return ""  # the emulator is away, and its VMs live on
    finally:
        line.close()


def _fail(message: str, code: int = CANNOT_RUN) -> int:
    print(message, file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    if sys.argv[1] == "--keep":
        sys.exit(run_with_restarts(json.loads(sys.argv[2])))
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
