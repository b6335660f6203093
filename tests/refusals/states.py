"""The named states that rows of the tables start from: keys, files, jobs, models, uploads.

Jobs that end are made before those that train: time passes while they are made.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from contract.choices import Scope
from service.api.app import make_app
from service.domain import tokens
from service.domain.cloud.fleet import Price
from service.domain.datasets.dataset import DatasetLimits
from service.operations.files.uploads import PART_BYTES
from service.operations.projects import keys
from service.pricing.fixed import FixedPrices
from tests.datasets import GRADER, PAIRS, PROMPT, REWARD, labelled, prompts, rankings
from tests.integration.api.files import upload_parts
from tests.integration.finished_jobs import make_model
from tests.integration.sweeps.checkpointed_jobs import (
    cancel_job,
    cancel_with_checkpoints,
    start_with_checkpoints,
)
from tests.nodes.scripted_node import ScriptedNode, boot, metrics
from tests.world import DATASET, MODEL, ROW, SECRET, SPOT, TINY, World, client, stage
from trainer.contract import PROTOCOL

States = dict[str, Any]


def _spoilt(lines: list[str]) -> list[str]:
    """Return the rows with an invalid third and seventh one."""
    bad = '{"messages": [{"role": "judge", "content": "No."}]}'
    return [*lines[:2], "{", *lines[3:6], bad, *lines[7:]]


FIELD = "--the-boundary\r\nContent-Disposition: form-data; name="
FORM: States = {
    "field": FIELD,
    "is": "\r\n\r\n",
    "next": "\r\n",
    "purpose": f'{FIELD}"purpose"\r\n\r\nfine-tune\r\n',
    "anchor": f'{FIELD}"expires_after[anchor]"\r\n\r\ncreated_at\r\n',
    "file": f'{FIELD}"file"; filename="t.jsonl"\r\n\r\n',
    "rows": DATASET.decode(),
    "next last": "\n",
    "only a purpose": f'{FIELD}"purpose"\r\n\r\nfine-tune',
    "two bad lines": "\n".join(_spoilt(DATASET.decode().split("\n"))),
    "end": "\r\n--the-boundary--\r\n",
}
PYTHON = {"type": "python", "source": "def grade(sample, item):\n    return 1.0\n"}
BROKEN = PYTHON | {"source": "def grade(sample, item):\n    return 1 +"}
PARTS = {"type": "multi", "name": "all", "calculate_output": "a"}
GRADERS: States = {
    "grader": GRADER,
    "odd grader": GRADER | {"operation": "gt"},
    "python": PYTHON,
    "broken python": BROKEN,
    "parts with python": PARTS
    | {"graders": {"a": GRADER, "b": PYTHON}, "calculate_output": "a + b"},
    "parts with a broken source": PARTS | {"graders": {"a": BROKEN}},
    "parts without names": PARTS | {"graders": GRADER},
    "endless braces": GRADER | {"input": "{{ item.x " * 900},
    "many braces": GRADER | {"input": "{{ " * 100_000},
    "wide grader": GRADER | {"input": "{{item.x}}" * 1000},
    "wide item": {"x": "x" * 1_000_000 + "\U0001f600"},  # which makes a character four bytes
}
VALUES: States = FORM | {
    "null": None,
    "seventeen members": {f"k{n}": "v" for n in range(17)},
    "reward": REWARD,
    "graded": {"type": "reinforcement", "reinforcement": {"grader": GRADER}},
    **GRADERS,
    "timeless": vars(metrics(1)) | {"seconds": -1.0},
    "no text": b"\xff",
    "gzip": b"\x1f\x8b",
    "2 MB of spaces": b" " * 2_000_000,
    "too many bytes": DatasetLimits.max_upload_bytes + 1,
    "too large a part": PART_BYTES + 1,
    "row": ROW,
}


@asynccontextmanager
async def open_states(world: World) -> AsyncIterator[States]:
    """Every named state."""
    states = VALUES | {"operator": world.key, "usual": world.http}
    for build in (_keys, _files, _models, _jobs, _uploads):
        states |= await build(world, states)
    gpus = replace(world.parts, **_with_gpus(world))
    async with client(make_app(gpus)) as http:
        yield states | {"gpus": http}


async def _keys(world: World, states: States) -> States:
    values: States = {"wrong key": "rk-unknown-wxyz", "others": await world.other_key()}
    async with world.engine.begin() as conn:
        for name, life in {"read": None, "write": None, "hour": timedelta(hours=9)}.items():
            scope = Scope.READ if name == "read" else Scope.WRITE
            until = world.clock() + life if life else None
            values[f"{name} key"] = await keys.create(
                conn, "tests", name, world.clock(), scope=scope, expires_at=until
            )
    now = int(world.clock().timestamp())
    values |= {"now": now, "a second ago": now - 1, "in a day": now + 86_400}
    listed_keys = (await world.call("GET", "/v1/api_keys")).json()["data"]
    values["own"] = next(key["id"] for key in listed_keys if key["name"] == "tests")
    other_world = replace(world, key=values["others"])
    return values | {
        "their pairs": await other_world.upload(PAIRS),
        "their chats": await other_world.upload(),
    }


async def _files(world: World, states: States) -> States:
    data = {
        "chats": DATASET,
        "pairs": PAIRS,
        "prompts": prompts(),
        "lacking": prompts({"messages": PROMPT["messages"]}),
        "rankings": rankings(3),
        "labelled": labelled("good", "bad"),
        "one label": labelled("good"),
        "other labels": labelled("good", "ugly"),
    }
    return {name: await world.upload(content) for name, content in data.items()}


async def _models(world: World, states: States) -> States:
    """Finished jobs, cancelled ones with checkpoints, and base models that are not whole."""
    model, ended = await make_model(world), await cancel_with_checkpoints(world, 2, 3)
    judge = await make_model(world, training_file=states["pairs"], method=REWARD)
    await stage(world.store, "giant", TINY | {"hidden_size": 65_536, "num_hidden_layers": 4000})
    answer = await world.call("GET", f"/v1/fine_tuning/jobs/{ended['id']}/checkpoints")
    checkpoint = answer.json()["data"][0]["fine_tuned_model_checkpoint"]
    names = ("config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors")
    await stage(world.store, "half", names=names)
    return {
        "made": model["id"],
        "made model": model["fine_tuned_model"],
        "misspelt model": model["fine_tuned_model"].replace("::", ":x:"),
        "result": model["result_files"][0],
        "judge": judge["id"],
        "ended": ended["id"],
        "checkpoint": checkpoint,
        "misspelt checkpoint": checkpoint.replace("::", ":x:"),
        "asks a chat": _asks(model["fine_tuned_model"]),
        "asks a base model": _asks(MODEL),
        "asks nobody": _asks("ft:nobody:tests::ftjob-0"),
        "asks a checkpoint": _asks(f"{ended['id']}:ckpt-step-2"),
    }


def _asks(model: str) -> dict[str, str]:
    return {"type": "reward_model", "model": model}


async def _jobs(world: World, states: States) -> States:
    """Return a job that has machines, one that only waits, and one that trains."""
    ended = await world.submit()
    last = (await boot(world, ended["id"]))[0]
    cancelled = await cancel_job(world, ended["id"])
    booted = await world.submit(validation_file=await world.upload())
    node = (await boot(world, booted["id"]))[0]
    assert node.seat is not None
    assert last.seat is not None
    trains, _ = await start_with_checkpoints(world, 2, 4)
    going = await world.submit()
    request = await world.job_request()
    plan = (await world.call("POST", "/v1/fine_tuning/plans", json=request)).json()["id"]
    other_job = await replace(world, key=states["others"]).submit()
    lying = (await world.call("GET", f"/v1/fine_tuning/jobs/{trains}/storage")).json()
    events = (await world.call("GET", f"/v1/fine_tuning/jobs/{going['id']}/events")).json()
    return {
        "over": cancelled["id"],
        "over attempt": last.attempt_id,
        "over node": last.seat.node_id,
        "over token": last.seat.node_token,
        "over bootstrap token": tokens.bootstrap_token(SECRET, last.attempt_id),
        "over machine": registration(last),
        "booted attempt": node.attempt_id,
        "stranger": registration(replace(node, vm_id="vm-of-nobody")),
        "unknown bootstrap token": tokens.bootstrap_token(SECRET, "att-unknown"),
        "newest checkpoint": lying["folders"][0]["checkpoint"],
        "event of going": events["data"][0]["id"],
        "booted": booted["id"],
        "in use": booted["training_file"],
        "in use to validate": booted["validation_file"],
        "trains": trains,
        "going": going["id"],
        "asks none yet": _asks(going["id"]),
        "plan": plan,
        "planned": request | {"plan": plan},
        "their job": other_job["id"],
        "node": node.seat.node_id,
        "node token": node.seat.node_token,
        "bootstrap token": tokens.bootstrap_token(SECRET, node.attempt_id),
        "N token": tokens.node_token(SECRET, "N"),
    }


def registration(node: ScriptedNode) -> States:
    """Return a machine's first registration."""
    machine = {"vm_id": node.vm_id, "name": node.vm_id, "address": "127.0.0.9", "gpus": 0}
    return {"protocol": PROTOCOL, "attempt_id": node.attempt_id, "boot_id": "boot-9", **machine}


async def _uploads(world: World, states: States) -> States:
    upload, (first, second) = await upload_parts.upload_halves(world)
    third = (await upload_parts.send_part(world, upload, b"x")).json()["id"]
    stopped = await upload_parts.begin_upload(world)
    await world.call("POST", f"/v1/uploads/{stopped}/cancel")
    parts = {"upload": upload, "one": first, "two": second, "third": third}
    return parts | {"cancelled upload": stopped, "begun": upload_parts.WHOLE}


def files_in(folder: Path) -> States:
    """Files of users, by name; each lies in the folder."""
    bad = GRADER | {"operation": "gt"}
    learning = {"method": {"type": "reinforcement", "reinforcement": {"grader": bad}}}
    contents = {
        "chats file": DATASET,
        "prompts file": prompts(),
        "empty file": b"",
        "bad file": "\n".join(_spoilt(DATASET.decode().split("\n"))).encode(),
        "typo config": b"training:\n  ema_decey: 0.9\n",
        "grader config": json.dumps(learning).encode(),
        "grader file": json.dumps(GRADER).encode(),
        "half a grader": b"{",
        "list of graders": b"[]",
        "odd grader file": json.dumps(bad).encode(),
        "asking grader": json.dumps(GRADER | {"type": "score_model"}).encode(),
    }
    kinds = {name: ".yaml" if "config" in name else ".json" for name in contents}
    paths = {name: folder / f"{name.replace(' ', '-')}{kinds[name]}" for name in contents}
    for name, data in contents.items():
        paths[name].write_bytes(data)
    return {name: str(path) for name, path in paths.items()}


def _with_gpus(world: World) -> States:
    """Parts of a service whose machines have GPUs."""
    small = replace(SPOT, vm_size="Standard_NC24ads_A100_v4")
    table = {small: Price(hourly=Decimal("0.68"), on_demand_hourly=Decimal("3.67"))}
    defaults = replace(
        world.parts.plan_defaults,
        offerings=tuple(table),
        accelerator="cuda",
        processes_per_node=None,
        is_emulated=False,
    )
    return {"plan_defaults": defaults, "prices": FixedPrices(table)}
