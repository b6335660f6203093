"""Add one batch from stdin to a run of Weights & Biases, as a process of its own.

Only this file imports the package wandb. The key comes with the batch, so it is in no argument
and in no environment. The answer is one line of JSON on stdout.
"""

import json
import sys
from typing import Any


def main() -> int:
    """Add the batch; return 0 on success, 1 after printing the kind of error."""
    batch = json.load(sys.stdin)
    try:
        answer = {"url": add(batch)}
    except Exception as error:  # noqa: BLE001 - any fault of the package; its kind is printed
        answer = {"error": f"{type(error).__name__}: {error}".replace(batch["key"], "...")[:200]}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    return 1 if "error" in answer else 0


def add(batch: dict[str, Any]) -> str:
    """Add the points whose step the run lacks; return the run's address."""
    import wandb  # noqa: PLC0415 - an extra

    settings = wandb.Settings(
        api_key=batch["key"],
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        x_disable_stats=True,
        x_disable_meta=True,
        x_save_requirements=False,
    )
    options = batch["options"]
    run = wandb.init(
        project=options["project"],
        entity=options["entity"],
        name=options["name"] or batch["job"],
        tags=options["tags"],
        id=batch["job"],
        resume="allow",
        settings=settings,
    )
    following = run.step  # of a resumed run: the step after its last one
    for step, values in batch["points"]:
        if step >= following:
            run.log(values, step=step)
    run.finish(exit_code=batch["exit_code"])
    return str(run.url or "")


if __name__ == "__main__":
    sys.exit(main())
