"""Chats, a reward model, reinforcement: three real jobs, each from what others have made."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.product import Product

ASKED = [{"role": "user", "content": "Is the shop open?"}]
YES, NO = ([{"role": "assistant", "content": text}] for text in ("It is.", "No."))
CHAT = {"messages": [*ASKED, *YES]}
PAIR = {"input": {"messages": ASKED}, "preferred_output": YES, "non_preferred_output": NO}
GRADER = {
    "type": "multi",
    "graders": {"liked": {"type": "reward_model", "model": "$judge"}},
    "calculate_output": "0.5 * liked",
}
LEARN = {"grader": GRADER, "answers": 2, "max_answer_tokens": 8}
HYPER = {"hyperparameters": {"n_epochs": 1, "batch_size": 8}}
ONE = {"infrastructure": {"nodes": 1}}
SHORT: dict[str, Any] = {"max_seq_len": 64, "learning_rate": 0.001}


def write(folder: Path) -> Path:
    """Write the pipeline and its files; return the pipeline's path."""
    rows = {"chats": CHAT, "pairs": PAIR, "prompts": {"messages": ASKED}}
    for name, row in rows.items():
        (folder / f"{name}.jsonl").write_text("\n".join([json.dumps(row)] * 24))
    adapters = SHORT | {"adapter": {"type": "lora", "r": 4}, "ema_decay": 0.9}
    phases = [
        ("sft", "rekindle/tiny-llama", "chats", {"type": "supervised", "supervised": HYPER}),
        ("judge", "$sft", "pairs", {"type": "reward", "reward": HYPER}),
        ("rl", "$sft", "prompts", {"type": "reinforcement", "reinforcement": LEARN | HYPER}),
    ]
    requests = [
        {
            "name": name,
            "model": model,
            "training_file": f"{file}.jsonl",
            "method": method,
            "training": adapters if name == "sft" else SHORT,
            **ONE,
        }
        for name, model, file, method in phases
    ]
    path = folder / "pipeline.json"
    path.write_text(json.dumps({"name": "shop", "phases": requests}))
    return path


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_three_phases_hand_their_models_on(product: Product, tmp_path: Path) -> None:
    command = ("pipeline", str(write(tmp_path)), "--json", "--state", str(product.stack.state))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rekindle.cli.main", *command), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    jobs = await product.get("/fine_tuning/jobs")
    rl, judge, sft = [await product.get(f"/fine_tuning/jobs/{job['id']}") for job in jobs["data"]]
    measured = (await product.get(f"/fine_tuning/jobs/{rl['id']}/metrics"))["data"]

    assert process.returncode == 0, printed
    assert [job["status"] for job in (sft, judge, rl)] == ["succeeded"] * 3
    assert judge["model"] == rl["model"] == sft["fine_tuned_model"]
    assert [row["grader_errors"] for row in measured] == [0] * len(measured)
    assert all(row["reward"] != 0.0 for row in measured), "the reward model was asked"
    hashes = {job["result"]["parameters_sha256"] for job in (sft, judge, rl)}
    assert len(hashes) == 3
