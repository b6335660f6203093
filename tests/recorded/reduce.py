"""Reduction of public recordings to facts: `python -m tests.recorded.reduce SOURCE FILE...`.

It is needed only to add recordings, because the facts are committed and the recordings are not.
SOURCE names the repository. A file is a YAML cassette (azure-cli, azure-service-operator) or a .NET
session record. Each becomes `facts/SOURCE.RECORDING.jsonl` with one line per exchange, in order.

Facts are method, path, api-version, request body, status, error code, polling headers, and names
and types of the answer's members. Names of resources are numbered, ids are zeroed; secrets, keys,
scripts and texts are replaced. Only the last poll of an operation is kept.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from tests.recorded.names import Names, scrubbed
from tests.recorded.shapes import shape

FACTS = Path(__file__).parent / "facts"
POLLED = ("Azure-AsyncOperation", "Location", "Retry-After")
POLL = re.compile("/(async)?operation(s|results|status(es)?)/", re.IGNORECASE)
MOCK = "mock-deployment"
# az looks up images before each command; role assignments name a principal that differs here.
SKIPPED = re.compile("/artifacttypes/|/roleAssignments/", re.IGNORECASE)
DEEP = 9  # nesting levels of an answer to keep
Facts = dict[str, Any]


def exchanges(file: Path) -> Iterator[Facts]:
    """Yield exchanges with Azure Resource Manager: method, uri, body, status, answer, headers."""
    if file.suffix == ".json":
        for entry in json.loads(file.read_text("utf-8-sig"))["Entries"]:
            yield {
                "method": entry["RequestMethod"],
                "uri": entry["RequestUri"],
                "body": entry["RequestBody"],
                "status": int(entry["StatusCode"]),
                "answer": entry["ResponseBody"],
                "headers": entry["ResponseHeaders"],
            }
        return
    deployments = 0  # az uses one name for all deployments of a recording
    for interaction in yaml.safe_load(file.read_text())["interactions"]:
        request, answer = interaction["request"], interaction["response"]
        body = answer.get("body") or ""
        uri = request.get("uri") or request["url"]
        deployments += request["method"] == "PUT" and MOCK in uri
        yield {
            "method": request["method"],
            "uri": uri.replace(MOCK, f"{MOCK}-{deployments}"),
            "body": request.get("body") or "",
            "status": int(answer["code"] if "code" in answer else answer["status"]["code"]),
            "answer": body.get("string") or "" if isinstance(body, dict) else body,
            "headers": answer["headers"],
        }


def reduce(file: Path) -> list[Facts]:
    """Return all facts of one recording."""
    azure_exchanges = [e for e in exchanges(file) if _of_azure(e["uri"])]
    names = Names([e["uri"] for e in azure_exchanges])
    rows: list[Facts] = []
    begun: dict[str, int] = {}  # by polling address: index of the row that named it
    last: dict[str, int] = {}
    for exchange in azure_exchanges:
        address = _address(exchange["uri"])
        if POLL.search(exchange["uri"]) is None:
            address = ""
        elif address not in begun:
            continue
        row = _row(exchange, names)
        if address in begun:
            header = "Location" if exchange["status"] == 202 or _monitors(exchange) else POLLED[0]
            row |= {"path": "{operation}", "of": begun[address], "header": header}
            row.pop("query", None)
            if (before := last.get(address + header)) is not None:
                rows[before]["stale"] = True
            last[address + header] = len(rows)
        for header in POLLED[:2]:
            at = exchange["headers"].get(header) or exchange["headers"].get(header.lower())
            if at and POLL.search(at[0]):
                begun.setdefault(_address(at[0]), begun.get(address, len(rows)))
        rows.append(row)
    return _renumbered(rows)


def _of_azure(uri: str) -> bool:
    is_management = not uri.startswith("http") or urlsplit(uri).netloc == "management.azure.com"
    return is_management and not SKIPPED.search(uri)


def _address(uri: str) -> str:
    """Return the id of an operation, because az uses another name in the rest of the URL."""
    return urlsplit(uri).path.rpartition("/")[2].lower()


def _monitors(exchange: Facts) -> bool:
    return "monitor=true" in exchange["uri"] or "operationresults" in exchange["uri"].lower()


def _row(exchange: Facts, names: Names) -> Facts:
    at = urlsplit(exchange["uri"])
    query = dict(parse_qsl(at.query))
    answer = _json(exchange["answer"])
    error = answer.get("error", answer) if isinstance(answer, dict) else {}
    refused = exchange["status"] >= 400 or (isinstance(answer, dict) and "error" in answer)
    row: Facts = {
        "method": exchange["method"],
        "path": names.numbered(at.path.replace("%7B", "{")),
        "version": query.pop("api-version", ""),
        "query": query,
        "body": names.in_body(scrubbed(_json(exchange["body"]))),
        "status": exchange["status"],
        "error": error.get("code", "") if refused else "",
        "state": answer.get("status", "") if isinstance(answer, dict) else "",
        "headers": [h for h in POLLED if {h, h.lower()} & set(exchange["headers"])],
        "shape": None if refused else names.in_body(shape(answer, DEEP)),
    }
    if isinstance(answer, dict) and answer.get("type") == "Microsoft.Resources/resourceGroups":
        row["location"] = names.numbered(answer["location"])
    return {k: v for k, v in row.items() if v or k in ("status", "version")}


def _json(text: str | bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _renumbered(rows: list[Facts]) -> list[Facts]:
    """Drop polls that are followed by another one, and polls without an end."""
    retained = [
        n
        for n, row in enumerate(rows)
        if not row.pop("stale", False)
        and not ("of" in row and (row["status"] == 202 or row.get("state") == "InProgress"))
    ]
    positions = {old: new for new, old in enumerate(retained)}
    for row in rows:
        if "of" in row:
            row["of"] = positions.get(row["of"], -1)
        elif "state" in row:
            del row["state"]
    return [rows[n] for n in retained if rows[n].get("of", 0) >= 0]


def main() -> None:
    """Reduce the files that are named on the command line."""
    source, *files = sys.argv[1:]
    table = FACTS / "shapes.jsonl"  # a row's "shape" is the index of a line here
    shapes = dict.fromkeys(table.read_text().splitlines()) if table.exists() else {}
    for file in map(Path, files):
        rows = reduce(file)
        for row in rows:
            if "shape" in row:
                shapes.setdefault(line := _line(row["shape"]))
                row["shape"] = list(shapes).index(line)
        (FACTS / f"{source}.{file.stem}.jsonl").write_text("".join(_line(r) + "\n" for r in rows))
    table.write_text("".join(f"{line}\n" for line in shapes))


def _line(value: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(value, separators=(",", ":"))


if __name__ == "__main__":
    main()
