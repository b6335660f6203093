"""Write an image's bill of materials as CycloneDX: Debian, Python and npm packages.

Debian packages are listed in the image. Python and npm packages come from the lock files, which the
image matches by hash. Scanners match packages by their package URL.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from docker import lock
from docker.engine import ROOT, ContainerEngine

HERE = ROOT / "docker"
OUTPUT = ROOT / "build" / "sbom"
FIELDS = "${Package}\t${Version}\t${Architecture}\t${source:Package}\n"


def write(engine: ContainerEngine, image: str, locks: Sequence[str]) -> Path:
    """Write an image's bill of materials; ``locks`` are the lock files that it was built from."""
    asked = ("--entrypoint", "dpkg-query", image, "--show", "--showformat", FIELDS)
    listed = engine.run("rk-packages", *asked)
    listed.check_returncode()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    file = OUTPUT / f"{image.rpartition('/')[2].replace(':', '-')}.cdx.json"
    file.write_text(render(image, listed.stdout, locks))
    return file


def render(image: str, debian: str, locks: Sequence[str]) -> str:
    """Return the bill of materials as JSON; ``debian`` is dpkg-query's output for FIELDS."""
    purls = [*_debian(debian)]
    for name in locks:
        content = (HERE / name).resolve().read_text()
        purls += _npm(content) if name.endswith(".json") else _python(content)
    name, _, version = image.rpartition(":")
    root = Component(type=ComponentType.CONTAINER, name=name, version=version, bom_ref=image)
    system = Component(type=ComponentType.OPERATING_SYSTEM, name="debian", version=_release())
    bom = Bom(components=[system, *map(_library, purls)])
    bom.metadata.component = root
    bom.register_dependency(root, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _library(purl: PackageURL) -> Component:
    name = f"{purl.namespace}/{purl.name}" if purl.type == "npm" and purl.namespace else purl.name
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=purl.version,
        purl=purl,
        bom_ref=purl.to_string(),
    )


def _debian(listed: str) -> Iterator[PackageURL]:
    """Yield Debian packages with distribution and source package, which scanners need."""
    for line in listed.splitlines():
        name, version, architecture, source = line.split("\t")
        told = {"arch": architecture, "distro": f"debian-{_release()}", "upstream": source}
        yield PackageURL("deb", "debian", name, version, qualifiers=told)


def _python(content: str) -> Iterator[PackageURL]:
    for pin in lock.pins(content):
        name, _, version = pin.split()[0].partition("==")
        yield PackageURL("pypi", None, name, version)


def _npm(content: str) -> Iterator[PackageURL]:
    for path, facts in json.loads(content)["packages"].items():
        if path:  # the first is ourselves
            namespace, _, name = path.rpartition("node_modules/")[2].rpartition("/")
            yield PackageURL("npm", namespace or None, name, facts["version"])


def _release() -> str:
    """Return the Debian release of the Dockerfiles."""
    named = re.search(r"BASE=debian:(\d+)", (HERE / "service.Dockerfile").read_text())
    assert named is not None
    return named[1]
