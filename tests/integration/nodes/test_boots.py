"""What machines say before their supervisor runs, and what becomes of their jobs."""

from typing import Any

import httpx
import pytest

from service.domain import tokens
from service.domain.cloud.fleet import scale_set_name
from tests.nodes.scripted_node import boot as boot_nodes
from tests.nodes.scripted_node import evicted, train
from tests.world import SECRET, World

REFUSED = 'Error response from daemon: Head "https://r.azurecr.io/v2/t/manifests/1": unauthorized: '
REFUSED += "authentication required, visit https://aka.ms/acr/authorization for more information."
SLOW = (
    'Error response from daemon: Get "https://r.azurecr.io/v2/": net/http: request canceled while '
)
SLOW += "waiting for connection (Client.Timeout exceeded while awaiting headers)"


async def machines_up(world: World, job: str) -> dict[str, Any]:
    """Return the newest attempt once its machines exist; none of them registers."""
    attempt: dict[str, Any] = {"state": "none"}
    for _ in range(20):
        await world.tick()
        attempt = (await world.attempts_of(job) or [attempt])[-1]
        if attempt["state"] == "starting":
            break
    assert attempt["state"] == "starting", attempt
    return attempt


async def report_boot(
    world: World, attempt: str, text: str | bytes = "", *, token: str = "", **query: str
) -> httpx.Response:
    query = {"phase": "pull_image", "said": "gave_up", "machine": "rk-1_0"} | query
    token = token or tokens.bootstrap_token(SECRET, attempt)
    return await world.http.post(
        f"/internal/boots/{attempt}",
        params=query,
        content=text,
        headers={"authorization": f"Bearer {token}"},
    )


async def read_log(world: World, job: str, **query: str | int) -> str:
    response = await world.call("GET", f"/v1/fine_tuning/jobs/{job}/logs", params=query)
    assert response.status_code == 200, response.text
    return response.text


async def test_a_sign_in_that_is_refused_fails_the_job_after_one_attempt_and_says_what_to_do(
    world: World,
) -> None:
    job = str((await world.submit())["id"])
    attempt = await machines_up(world, job)
    response = await report_boot(world, attempt["id"], f"{REFUSED}\n" * 10)
    await world.tick(2)
    failed = await world.job(job)

    assert response.status_code == 204
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "boot_failed"
    assert "The machines cannot boot: rk-1_0, pull_image" in failed["error"]["message"]
    assert "role AcrPull" in failed["error"]["message"]
    assert "unauthorized: authentication required" in failed["error"]["message"]
    assert len(await world.attempts_of(job)) == 1
    assert {"attempt.needs_help", "node.boot_failed"} <= set(await world.event_codes(job))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{REFUSED}\n" * 9, "failed"),  # a fresh identity may be refused for two minutes
        (f"{REFUSED}\n" * 9 + SLOW, "gave_up"),
    ],
)
async def test_transient_boot_failures_are_events_and_retried(
    world: World, text: str, message: str
) -> None:
    job = str((await world.submit())["id"])
    attempt = await machines_up(world, job)
    await report_boot(world, attempt["id"], text, said=message)
    await world.tick(2)

    assert (await world.attempts_of(job))[-1]["state"] == "starting"
    assert (await world.job(job))["status"] == "queued"
    assert "node.boot_failed" in await world.event_codes(job)


async def test_a_job_that_has_trained_is_paused_and_not_lost_when_its_machines_cannot_boot(
    world: World,
) -> None:
    job = str((await world.submit())["id"])
    await train(world, await boot_nodes(world, job), step=3)
    await evicted(world, job)
    await world.tick(3)
    attempt = await machines_up(world, job)
    await report_boot(world, attempt["id"], "manifest unknown\n" * 10)
    await world.tick(3)
    paused = await world.job(job)

    assert paused["phase"] == "paused"
    assert paused["status_reason"]["code"] == "boot_failed"
    assert "Check REKINDLE_TRAINER_IMAGE" in paused["status_reason"]["message"]
    resumed = await world.call("POST", f"/v1/fine_tuning/jobs/{job}/resume")
    assert resumed.status_code == 200, resumed.text
    await train(world, await boot_nodes(world, job), step=4)
    await world.tick()
    assert (await world.job(job))["status_reason"]["code"] != "needs_help"
    assert "attempt.help_over" in await world.event_codes(job)


async def test_serial_logs_of_machines_that_never_joined_are_the_attempts_logs_when_it_is_gone(
    world: World,
) -> None:
    job = str((await world.submit())["id"])
    attempt = await machines_up(world, job)
    name = scale_set_name(attempt["id"])
    world.cloud.serial_logs[f"{name}_1"] = b"kernel: panic\n"
    await world.tick(70, seconds=30)

    assert name not in world.cloud.billed_names()
    first = await read_log(world, job, attempt=attempt["id"])
    assert first == f"Serial log of {name}_0, which did not join:\ncloud-init: booted\n"
    assert (await read_log(world, job, attempt=attempt["id"], rank=1)).endswith("kernel: panic\n")
    assert "attempt.serial_log" in await world.event_codes(job)


async def test_a_serial_log_that_cannot_be_had_delays_no_deletion(world: World) -> None:
    job = str((await world.submit())["id"])
    attempt = await machines_up(world, job)
    world.cloud.fail_serial_logs = True
    await report_boot(world, attempt["id"], f"{REFUSED}\n" * 10)
    await world.tick(2, seconds=1)

    assert (await world.attempts_of(job))[-1]["state"] == "terminating"
    await world.tick(20)
    assert world.cloud.billed_names() == set()
    assert await read_log(world, job) == ""


async def test_what_a_trainer_printed_is_not_written_over(world: World) -> None:
    job = str((await world.submit())["id"])
    await train(world, await boot_nodes(world, job), step=3)
    await evicted(world, job)
    await world.tick(3)

    assert "attempt.serial_log" not in await world.event_codes(job)


async def test_each_boot_phase_and_each_failure_of_a_machine_is_one_event(world: World) -> None:
    job = str((await world.submit())["id"])
    attempt = (await machines_up(world, job))["id"]
    for machine in ("rk-1_0", "rk-1_1") * 2:
        for phase in ("pull_image", "await_driver"):
            await report_boot(world, attempt, said="begun", phase=phase, machine=machine)
        await report_boot(world, attempt, SLOW, said="failed", machine=machine)
    codes = await world.event_codes(job)

    assert codes.count("node.booting") == 2
    assert codes.count("node.boot_failed") == 2


async def test_bytes_of_any_kind_are_kept_as_text(world: World) -> None:
    job = str((await world.submit())["id"])
    attempt = (await machines_up(world, job))["id"]
    response = await report_boot(world, attempt, b"\0\xff\xed\xa0\x80 docker\x1b[2J", said="failed")

    assert response.status_code == 204
    assert "node.boot_failed" in await world.event_codes(job)
