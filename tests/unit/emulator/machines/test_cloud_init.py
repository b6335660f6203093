"""What an emulated VM understands of cloud-init."""

import base64
import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.machines.cloud_init import BadUserData, Boot, WriteFile, parse
from service.cloud.cloud_init import render

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
    assert boot.scripts == ("sh -c 'cat /etc/a $HOME'\ncat /etc/a /etc/ab /x/etc/a > /etc/abc\n",)
    assert boot.ignored == ("package_update",)


def test_commands_find_written_files_where_they_lie() -> None:
    boot = parse(DOCUMENT)
    script = boot.below("/vm", boot.scripts[0])

    assert script == ("sh -c 'cat /vm/etc/a $HOME'\ncat /vm/etc/a /vm/etc/ab /x/etc/a > /etc/abc\n")


def test_zipped_user_data_and_files_are_unpacked() -> None:
    zipped = base64.b64encode(gzip.compress(b"three")).decode()
    text = f"#cloud-config\nwrite_files: [{{path: /a, encoding: gz+b64, content: {zipped}}}]\n"

    assert parse(gzip.compress(text.encode())).files[0].content == b"three"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("runcmd: []", "must begin with one of #cloud-config"),
        ("#cloud-config\n- a", "must be a mapping"),
        ("#cloud-config\na: [", "not YAML"),
        ("#cloud-config\nruncmd: echo", "must be a list"),
        ("#cloud-config\nruncmd: [{a: 1}]", "runcmd items must be strings or lists"),
        ("#cloud-config\nwrite_files: [{path: etc/a}]", "absolute paths"),
        ("#cloud-config\nwrite_files: [{path: /a, encoding: rot13}]", "no encoding 'rot13'"),
        ("#cloud-config\nwrite_files: [{path: /a, permissions: rw}]", "invalid literal"),
        ("#cloud-config\nwrite_files: [{path: /a, encoding: b64, content: a}]", "cannot be read"),
        ("\x1f\x8bnot zipped", "cannot be read"),
    ],
)
def test_nonsense_is_named(text: str, complaint: str) -> None:
    with pytest.raises(BadUserData, match=complaint.replace("'", ".")):
        parse(text.encode("latin-1"))


def test_without_user_data_there_is_nothing_to_do() -> None:
    assert parse(b"") == Boot()


def test_what_a_file_holds_may_be_a_number() -> None:
    assert parse(b"#cloud-config\nwrite_files: [{path: /a, content: 5}]").files[0].content == b"5"


MIXED = """\
Content-Type: multipart/mixed; boundary="=="
MIME-Version: 1.0

--==
Content-Type: text/cloud-config

#cloud-config
users: [{name: ops}]
write_files: [{path: /etc/first, content: lost}]
runcmd: [echo three]
--==
Content-Type: text/cloud-config
Content-Transfer-Encoding: base64

BASE64
--==
Content-Type: text/x-shellscript
Content-Disposition: attachment; filename="b.sh"

#!/bin/sh
echo two
--==
Content-Type: text/plain
Content-Disposition: attachment; filename="a.sh"

#!/bin/sh
echo one
--==
Content-Type: text/cloud-boothook

#cloud-boothook
echo hook
--==
Content-Type: text/jinja2

## template: jinja
--==--
"""


def test_the_parts_of_mime_user_data_are_put_together() -> None:
    second = b"#cloud-config\nbootcmd: [echo boot]\nwrite_files: [{path: /etc/second}]\n"
    boot = parse(MIXED.replace("BASE64", base64.b64encode(second).decode()).encode())

    assert boot.early == ("echo hook", "echo boot\n")
    assert [file.path for file in boot.files] == ["/etc/second"]  # a later part replaces the key
    assert boot.scripts == ("#!/bin/sh\necho one", "#!/bin/sh\necho two", "echo three\n")
    assert boot.ignored == ("text/jinja2", "users")


@pytest.mark.parametrize("accelerator", ["cuda", "cpu"])
def test_what_the_service_writes_is_valid_for_cloud_init_itself(
    tmp_path: Path, accelerator: str
) -> None:
    text = render('{"attempt_id":"att-1"}', "registry.example/rekindle/trainer:1.0", accelerator)
    assert parse(text.encode()).ignored == ()
    program = shutil.which("cloud-init")
    if program is None:
        sys.stderr.write("cloud-init is not installed: only the emulator has read the text\n")
        return
    file = tmp_path / "user-data"
    file.write_text(text)
    command = [program, "schema", "--config-file", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "Valid cloud-config" in result.stdout + result.stderr
