"""Train the tiny base model over the API and wait: `first_job.py URL KEY`, in the local image.

For a stack of compose.yaml whose `prepare` has run. Exit code 1 unless the job succeeds.
"""

import json
import sys
import time
from typing import Any

import httpx

MODEL = "rekindle/tiny-llama"
ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"What is {n} plus one?"},
            {"role": "assistant", "content": str(n + 1)},
        ]
    }
    for n in range(16)
]
TIMEOUT = 900.0  # seconds until the job is over, on a busy machine


def main(url: str, key: str) -> int:
    """Upload a file, submit a job, wait for it, and print it."""
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{url}/v1", headers=headers, timeout=60, trust_env=False) as http:
        job = _submit(http)
        latest = time.monotonic() + TIMEOUT
        while time.monotonic() < latest and job["status"] not in {"succeeded", "failed"}:
            time.sleep(1)
            job = http.get(f"/fine_tuning/jobs/{job['id']}").raise_for_status().json()
        events = http.get(f"/fine_tuning/jobs/{job['id']}/events").raise_for_status().json()
    for event in reversed(events["data"]):
        sys.stdout.write(f"{event['message']}\n")
    sys.stdout.write(f"{json.dumps(job)}\n")
    return int(job["status"] != "succeeded")


def _submit(http: httpx.Client) -> dict[str, Any]:
    content = "\n".join(json.dumps(row) for row in ROWS)
    upload = {"files": {"file": ("first.jsonl", content)}, "data": {"purpose": "fine-tune"}}
    file = http.post("/files", **upload).raise_for_status().json()  # type: ignore[arg-type] # both are dicts
    request = {
        "model": MODEL,
        "training_file": file["id"],
        "method": {
            "type": "supervised",
            "supervised": {"hyperparameters": {"n_epochs": 2, "batch_size": 4}},
        },
        "infrastructure": {"nodes": 1},
        "training": {"max_seq_len": 128, "learning_rate": 0.002},
    }
    job: dict[str, Any] = http.post("/fine_tuning/jobs", json=request).raise_for_status().json()
    return job


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
