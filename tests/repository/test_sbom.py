"""Bills of materials of the images are complete, and scanners can read them."""

import json
import re
from typing import Any

import pytest

from docker import lock, sbom
from docker.engine import ROOT

# As `dpkg-query` prints it for sbom.FIELDS.
DEBIAN = "libc6\t2.36-9+deb12u14\tamd64\tglibc\ntini\t0.19.0-1\tamd64\ttini\n"
NPM = "../package-lock.json"


@pytest.mark.parametrize("name", sorted(file.name for file in sbom.HERE.glob("*.txt")))
def test_every_locked_package_of_python_is_named(name: str) -> None:
    pins = [pin.split()[0].split("==") for pin in lock.pins((sbom.HERE / name).read_text())]
    locked = {(re.sub(r"[-_.]+", "-", package).lower(), version) for package, version in pins}

    named = {
        (component["name"], component["version"])
        for component in parts(name)
        if purl(component, "pypi")
    }

    assert len(locked) > 0
    assert {(re.sub(r"[-_.]+", "-", n).lower(), version) for n, version in named} == locked


def test_every_locked_package_of_npm_is_named() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    locked = {
        (path.rpartition("node_modules/")[2], facts["version"])
        for path, facts in packages.items()
        if path
    }

    named = {
        (component["name"], component["version"])
        for component in parts(NPM)
        if purl(component, "npm")
    }

    assert ("@azure/core-auth", "1.10.1") in named
    assert named == locked


def test_a_scanner_finds_the_distribution_and_the_source_of_each_debian_package() -> None:
    """Check package URLs, because scanners silently skip those without distribution or source."""
    debian = [component["purl"] for component in parts() if purl(component, "deb")]
    (system,) = [component for component in parts() if component["type"] == "operating-system"]

    assert debian == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=debian-12&upstream=glibc",
        "pkg:deb/debian/tini@0.19.0-1?arch=amd64&distro=debian-12&upstream=tini",
    ]
    assert (system["name"], system["version"]) == ("debian", "12")


def test_it_says_which_image_it_describes() -> None:
    document = bill()

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"] == {
        "bom-ref": "rekindle-service:1.4.0",
        "name": "rekindle-service",
        "type": "container",
        "version": "1.4.0",
    }


def bill(*locks: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(sbom.render("rekindle-service:1.4.0", DEBIAN, locks))
    return document


def parts(*locks: str) -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = bill(*locks)["components"]
    return components


def purl(component: dict[str, Any], kind: str) -> bool:
    return bool(component.get("purl", "").startswith(f"pkg:{kind}/"))
