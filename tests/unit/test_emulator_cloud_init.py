"""What an emulated VM understands of cloud-init."""

import base64
import gzip

import pytest

from emulator.cloud_init import BadUserData, WriteFile, parse

DOCUMENT = b"""#cloud-config
package_update: true
write_files:
  - {path: /etc/a, content: "one\\n", permissions: "0600", owner: "root:root"}
  - {path: /etc/ab, encoding: b64, content: dHdv, permissions: 0755}
runcmd:
  - [sh, -c, "cat /etc/a $HOME"]
  - cat /etc/a /etc/ab /x/etc/a > /etc/abc
"""


def test_files_and_commands_are_read() -> None:
    boot = parse(DOCUMENT)

    assert boot.files == (
        WriteFile(path="/etc/a", content=b"one\n", mode=0o600),
        WriteFile(path="/etc/ab", content=b"two", mode=0o755),
    )
    assert boot.script == ("sh -c 'cat /etc/a $HOME'\ncat /etc/a /etc/ab /x/etc/a > /etc/abc\n")
    assert boot.ignored == ("package_update",)


def test_commands_find_written_files_where_they_lie() -> None:
    script = parse(DOCUMENT).script_below("/vm")

    assert script == ("sh -c 'cat /vm/etc/a $HOME'\ncat /vm/etc/a /vm/etc/ab /x/etc/a > /etc/abc\n")


def test_zipped_user_data_and_files_are_unpacked() -> None:
    zipped = base64.b64encode(gzip.compress(b"three")).decode()
    text = f"#cloud-config\nwrite_files: [{{path: /a, encoding: gz+b64, content: {zipped}}}]\n"

    assert parse(gzip.compress(text.encode())).files[0].content == b"three"


def test_a_script_is_run_as_it_is() -> None:
    assert parse(b"#!/bin/sh\necho hi\n").script == "#!/bin/sh\necho hi\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("runcmd: []", "must begin with '#cloud-config'"),
        ("#cloud-config\n- a", "must be a mapping"),
        ("#cloud-config\na: [", "not YAML"),
        ("#cloud-config\nruncmd: echo", "must be a list"),
        ("#cloud-config\nruncmd: [{a: 1}]", "strings or lists"),
        ("#cloud-config\nwrite_files: [{path: etc/a}]", "absolute paths"),
        ("#cloud-config\nwrite_files: [{path: /../a}]", "without '..'"),
        ("#cloud-config\nwrite_files: [{path: /a, encoding: rot13}]", "no encoding 'rot13'"),
    ],
)
def test_nonsense_is_named(text: str, complaint: str) -> None:
    with pytest.raises(BadUserData, match=complaint.replace("'", ".")):
        parse(text.encode())
