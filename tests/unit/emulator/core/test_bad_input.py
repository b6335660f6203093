"""Whatever is sent, the answer is Azure's."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from emulator.arm import lenient_json
from tests.emulated.inside import GROUP_ID, SET, Inside

COMPUTE = f"{GROUP_ID}/providers/Microsoft.Compute"


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"no",
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"location": "\\ud800"}',
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("path", [SET, GROUP_ID])
async def test_a_body_that_is_no_json_object(inside: Inside, path: str, body: bytes) -> None:
    answer = await inside.arm.put(path, content=body)

    assert told(answer) == (400, "InvalidRequestContent")
    assert "The request content was invalid and could not be deserialized: '" in answer.text


async def test_a_body_of_more_than_four_mebibytes(inside: Inside) -> None:
    large = json.dumps({"location": "eastus", "tags": {"a": "b" * 4 * 1024 * 1024}}).encode()

    async def bit_by_bit() -> AsyncIterator[bytes]:
        for start in range(0, len(large), 65536):
            yield large[start : start + 65536]

    for content in (large, bit_by_bit()):
        answer = await inside.arm.put(GROUP_ID, content=content)
        assert told(answer) == (413, "RequestContentTooLarge")
    assert (await inside.arm.get(GROUP_ID)).json()["tags"] == {}


def test_deployments_may_send_what_only_people_would_write() -> None:
    text = """{
      // a remark
      "properties": {template: {$schema: "http://a//b/*c*/", /* and
        another */ "resources": [1, 2, /* two */ ], mode: "say \\"x, }\\"",},
      }
    }"""

    found = lenient_json.loads(text)["properties"]["template"]
    assert found == {"$schema": "http://a//b/*c*/", "resources": [1, 2], "mode": 'say "x, }"'}


@pytest.mark.parametrize("text", ["{a}", "{", "/* open", '{"a": "open', "{a: b}", ",", "[1,,]"])
def test_what_is_no_json_even_so(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+"):
        lenient_json.loads(text)
