"""The emulator's command line, and the certificate that it makes for itself."""

import json
from pathlib import Path

import pytest
from cryptography import x509

from emulator.core import catalog
from emulator.core.tls import certificates
from emulator.options import parser
from rekindle.local.layout import StackLayout
from rekindle.local.state_folder import StackPorts, StateFolder

NEEDED = ["--state", "x", "--arm-port", "0", "--metadata-port", "0"]


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--arm-port", "65536", "a port from 0 to 65535"),
        ("--speed", "0", "a number above 0"),
        ("--create-seconds", "-1", "a number of seconds, 0 or more"),
        ("--page-size", "0", "a whole number of 1 or more"),
        ("--spot-quota", "-1", "a whole number of 0 or more"),
        ("--blob-endpoint", "localhost", "an address such as http://127.0.0.1:10000"),
        ("--spot-capacity", "nowhere.json", "The capacity file nowhere.json cannot be read"),
        ("--catalog", "nowhere.json", "has not the form of emulator/core/catalog.json"),
    ],
)
def test_an_option_that_cannot_be(
    option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args([*NEEDED, option, value])

    assert f"argument {option}: " in (output := capsys.readouterr().err)
    assert expected in output


@pytest.mark.parametrize("images", [[], {"a": {}}, {"a": {"command": [1]}}, {"a": []}])
def test_images_without_commands(
    tmp_path: Path, images: object, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images.json").write_text(json.dumps(images))

    with pytest.raises(SystemExit):
        parser().parse_args([*NEEDED, "--images", str(tmp_path / "images.json")])

    assert '{"IMAGE": {"command": [' in capsys.readouterr().err


def test_now_is_no_time_in_a_capacity_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"region": "*", "kind": "trace", "data": [1], "gap_seconds": 60, "start": "now"}
    (tmp_path / "capacity.json").write_text(json.dumps([entry]))

    with pytest.raises(SystemExit):
        parser().parse_args([*NEEDED, "--spot-capacity", str(tmp_path / "capacity.json")])

    assert "now is for what is posted" in capsys.readouterr().err


def test_the_local_stack_gives_its_capacity_file_to_the_emulator(tmp_path: Path) -> None:
    file = tmp_path / "capacity.json"
    file.write_text("[]")
    (tmp_path / "images.json").write_text("{}")  # which the stack writes first
    layout = StackLayout(StateFolder(tmp_path), StackPorts.starting_at(9080), spot_capacity=file)

    argv = list(layout.emulator().argv)

    assert parser().parse_args(argv[argv.index("emulator") + 1 :]).spot_capacity == file


def test_a_catalog_adds_what_it_sells_to_what_there_is(tmp_path: Path) -> None:
    size = vars(catalog.catalog().sizes["standard_d2s_v5"])
    own_size = {k: v for k, v in size.items() if k != "name"} | {"short": "X1", "vcpus": 1}
    row = {"size": "Standard_X1", "location": "here", "zones": []}
    price = {"on_demand": "1", "spot": "0.5", "low_priority": "0.5"}
    locations = {"here": {"display": "Here", "meter": "HERE", "zones": []}}
    file = tmp_path / "more.json"
    added = {"sizes": {"Standard_X1": own_size}, "locations": locations, "prices": [row | price]}
    file.write_text(json.dumps(added))

    merged = catalog.read(parser().parse_args([*NEEDED, "--catalog", str(file)]).catalog)

    assert (offer := merged.offer("standard_x1", "here"))
    assert (str(offer.on_demand), offer.size.vcpus) == ("1", 1)
    assert merged.offer("Standard_D2s_v5", "here")  # sold everywhere, and so there
    assert catalog.catalog().offer("Standard_X1", "here") is None  # only once it is added


def test_the_certificate_holds_for_every_name_that_it_is_reached_by(tmp_path: Path) -> None:
    _, server = certificates(tmp_path, "emulator")
    certificate = x509.load_pem_x509_certificates(server.read_bytes())[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["localhost", "emulator"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
