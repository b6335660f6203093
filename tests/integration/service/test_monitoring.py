"""/metrics: who may read it, and that it says what happened to a job that was evicted."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from contract.choices import Scope
from service.api.app import make_probes
from service.instruments import DECLARED, MetricSource, MetricType
from service.operations.projects import keys
from tests.nodes.scripted_node import boot, commit, committed, say_all, start_training, train
from tests.world import PRICE, SPOT, World, client
from trainer.contract import GpuErrors, GpuLoad, NodePhase

BOUGHT = {"region": SPOT.region, "vm_size": SPOT.vm_size, "capacity_type": str(SPOT.capacity_type)}
OF_POST = {"operation": "createFineTuningJob", "status": "2xx"}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(world: World, key: str) -> Samples:
    response = await world.http.get("/metrics", headers={"authorization": f"Bearer {key}"})
    assert response.status_code == 200, response.text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, tuple(sorted(labels.items()))), 0.0)


@pytest.fixture
async def operator(world: World) -> str:
    """Yield a read-only key of the operators' project."""
    async with world.engine.begin() as conn:
        return await keys.create(
            conn, world.parts.operator_project, "prometheus", world.clock(), scope=Scope.READ
        )


async def test_a_process_without_users_shows_its_metrics_too(world: World, operator: str) -> None:
    async with client(make_probes(world.parts)) as http:
        response = await http.get("/metrics", headers={"authorization": f"Bearer {operator}"})
        unauthorized = await http.get("/metrics")

    assert "rekindle_jobs" in response.text
    assert unauthorized.status_code == 401


async def test_every_metric_that_is_declared_is_shown_and_no_label_names_a_job(
    world: World, operator: str
) -> None:
    response = await world.http.get("/metrics", headers={"authorization": f"Bearer {operator}"})
    names = {family.name for family in text_string_to_metric_families(response.text)}

    assert {name.removesuffix("_total") for name in DECLARED} <= names
    assert not {"job", "job_id", "attempt", "node", "project"} & {
        label for metric in DECLARED.values() for label in metric.labels
    }


def test_names_follow_prometheus_conventions() -> None:
    for metric in DECLARED.values():
        assert metric.name.startswith("rekindle_")
        assert (metric.kind is MetricType.COUNTER) == metric.name.endswith("_total")
        assert (metric.kind is MetricType.HISTOGRAM) == bool(metric.buckets)
        assert metric.source is MetricSource.PROCESS or metric.kind is MetricType.GAUGE
        assert metric.help.endswith(".")


async def test_the_metrics_tell_of_machines_money_eviction_and_recovery(
    world: World, operator: str
) -> None:
    before = await scrape(world, operator)
    job, nodes, first = await start_training(world, step=7)
    training = await scrape(world, operator)
    await nodes[1].notice(first, step=7)
    await world.tick(1, seconds=1)
    await commit(world, job, committed(4, first, "stop"))
    await say_all(nodes, NodePhase.STOPPED, first, step=7)
    await world.tick(2, seconds=1)
    new_nodes = await boot(world, job)
    second = await train(world, new_nodes, step=8)
    await commit(world, job, committed(10, second, "final"))
    await say_all(new_nodes, NodePhase.FINISHED, second, step=10)
    await world.tick(30)
    after = await scrape(world, operator)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert value(training, "rekindle_jobs", state="running") == 1
    assert value(training, "rekindle_machines", **BOUGHT) == 2
    assert value(training, "rekindle_dollars_per_hour", **BOUGHT) == 2 * float(PRICE.hourly)
    assert value(training, "rekindle_nodes", status="running") == 2
    assert value(after, "rekindle_machines", **BOUGHT) == 0
    assert grown("rekindle_attempt_outcomes_total", outcome="evicted", **BOUGHT) == 1
    assert grown("rekindle_attempt_outcomes_total", outcome="succeeded", **BOUGHT) == 1
    assert grown("rekindle_recovery_seconds_count") == 1
    assert grown("rekindle_lost_steps_total") == 3
    # 3 steps of half a second on two machines
    assert grown("rekindle_lost_machine_seconds_total", capacity_type="spot") == 3
    assert grown("rekindle_jobs_finished_total", state="succeeded") == 1
    assert grown("rekindle_spent_dollars_total", capacity_type="spot") > 0
    paid_seconds = grown("rekindle_paid_machine_seconds_total", capacity_type="spot")
    assert (
        0 <= grown("rekindle_training_machine_seconds_total", capacity_type="spot") <= paid_seconds
    )
    assert grown("rekindle_attempt_phase_seconds_count", phase="allocate") == 2
    assert grown("rekindle_http_request_seconds_count", **OF_POST) == 1
    assert grown("rekindle_http_request_seconds_count", operation="register", status="2xx") >= 4


async def test_the_load_of_gpus_is_measured_by_region_and_size(world: World, operator: str) -> None:
    before = await scrape(world, operator)
    _, nodes, number = await start_training(world)
    loads = (GpuLoad(busy=0.9, memory=0.5), GpuLoad(busy=0.7, memory=0.5))
    response = await nodes[0].say(NodePhase.RUNNING, number, step=2, gpus=loads)
    after = await scrape(world, operator)

    assert response.status_code == 200
    labels = {name: BOUGHT[name] for name in ("region", "vm_size")}
    for name, sum_ in (("utilization", 1.6), ("memory_used", 1.0)):
        total = f"rekindle_gpu_{name}_ratio_sum"
        assert value(after, total, **labels) - value(before, total, **labels) == pytest.approx(sum_)


async def test_gpu_errors_are_counted_once_with_news_and_without(
    world: World, operator: str
) -> None:
    before = await scrape(world, operator)
    _, nodes, number = await start_training(world)
    fields = {"gpu_errors": GpuErrors(corrected=5, uncorrected=1, fatal_xids=2, other_xids=3)}
    await nodes[0].say(NodePhase.RUNNING, number, step=2, **fields)
    await nodes[1].say(NodePhase.FAILED, number, step=2, error="ECC", unhealthy="ECC", **fields)
    after = await scrape(world, operator)

    def grown(name: str, kind: str) -> float:
        labels = {name: BOUGHT[name] for name in ("region", "vm_size")} | {"kind": kind}
        return value(after, name, **labels) - value(before, name, **labels)

    assert grown("rekindle_gpu_ecc_errors_total", "corrected") == 10
    assert grown("rekindle_gpu_ecc_errors_total", "uncorrected") == 2
    assert grown("rekindle_gpu_xid_errors_total", "fatal") == 4
    assert grown("rekindle_gpu_xid_errors_total", "other") == 6
