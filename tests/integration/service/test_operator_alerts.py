"""What one project's events say alone would reach no operator: the log says it too, once."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from service.cloud.provider import Misconfigured
from service.domain.money import budget
from service.domain.money.budget import BudgetStanding
from service.operations.money import budgets
from tests.nodes.scripted_node import boot, train
from tests.world import World
from trainer.contract import NodePhase

ROLE = Misconfigured("The service's identity lacks a role: grant Virtual Machine Contributor.")
WHY = "train.jsonl, line 17: the chat template takes no tools. Mend the row"


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING):
        yield caplog


def lines(log: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [record for record in log.records if record.getMessage() == name]


async def test_a_missing_role_is_an_operator_alert_as_often_as_an_event(
    world: World, log: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    world.cloud.fail_creates = [ROLE] * 3
    await world.tick(4, seconds=61)
    (attempt,) = await world.attempts_of(job["id"])

    (line,) = lines(log, "attempt.needs_help")
    assert line.levelname == "ERROR"
    facts = {"job": job["id"], "attempt": attempt["id"], "about": "azure", "cause": str(ROLE)}
    assert vars(line).items() >= facts.items()


async def test_a_failed_job_is_no_alert_for_operators(
    world: World, log: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=3)
    await nodes[0].say(NodePhase.FAILED, number, step=3, error=WHY, non_retryable=True)
    await nodes[1].say(NodePhase.FAILED, number, step=3, error="a peer is gone")
    await world.tick(3)

    (line,) = lines(log, "job.failed")
    assert line.levelname == "WARNING"
    facts = {"job": job["id"], "code": "trainer_error", "cause": WHY}
    assert vars(line).items() >= facts.items()


async def test_a_job_whose_machines_never_train_is_the_operators_matter(
    world: World, log: pytest.LogCaptureFixture
) -> None:
    job, began = await world.submit(), world.clock()
    while (await world.job(job["id"]))["status"] != "failed":
        assert world.clock() < began + timedelta(days=1)
        await world.tick(seconds=25)
    (line,) = lines(log, "job.failed")

    assert line.levelname == "ERROR"
    assert vars(line)["job"] == job["id"]
    assert "REKINDLE_TRAINER_IMAGE" in vars(line)["cause"]


@pytest.mark.parametrize("reached", [50, 90, budget.CAP_PASSED])
async def test_a_budget_that_did_not_hold_is_the_operators_matter_and_a_threshold_is_not(
    world: World, log: pytest.LogCaptureFixture, reached: int
) -> None:
    job = await world.submit()
    standing = BudgetStanding(cap=Decimal(10), metered=Decimal(11))
    async with world.engine.begin() as conn:
        await budgets.record_threshold(conn, job["id"], standing, reached, world.clock())

    told = [(line.levelname, vars(line)["job"]) for line in lines(log, "job.budget_passed")]
    assert told == ([("ERROR", job["id"])] if reached == budget.CAP_PASSED else [])
