"""A job whose GPUs are too small for its layout comes back by itself with less at once."""

from tests.nodes.scripted_node import ScriptedNode, boot, evicted, train
from tests.world import World
from trainer.contract import DirectiveKind, NodePhase, Rung


async def _submit(world: World, micro_batch: int, *, checkpointing: bool) -> str:
    training = {"micro_batch": micro_batch, "gradient_checkpointing": checkpointing}
    job = await world.submit(training=training, hyperparameters={"batch_size": 16})
    return str(job["id"])


async def _run_out_of_memory(world: World, nodes: list[ScriptedNode], step: int) -> Rung | None:
    """Let the next generation come to ``step`` and run short there; the rung that it was on."""
    number = await train(world, nodes, step=step - 1)
    short_node, peer = nodes
    error = "memory ran out on rank 0 with micro-batch 4: CUDA out of memory."
    fields = {"step": step - 1}
    await short_node.say(NodePhase.FAILED, number, error=error, out_of_memory=True, **fields)
    await peer.say(NodePhase.FAILED, number, error="a peer is gone", **fields)
    generation = short_node.last.generation if short_node.last else None
    assert generation is not None
    assert generation == (peer.last.generation if peer.last else None)
    return generation.rung


async def _opening_messages(world: World, job_id: str) -> list[str]:
    return [e["message"] for e in await world.events(job_id, "generation.opened")]


async def test_memory_that_runs_out_twice_costs_two_rungs_and_the_job_goes_on_there(
    world: World,
) -> None:
    job_id = await _submit(world, 4, checkpointing=True)
    nodes = await boot(world, job_id)
    planned = await _run_out_of_memory(world, nodes, step=17)
    halved = await _run_out_of_memory(world, nodes, step=3)
    number = await train(world, nodes, step=5)
    running = await world.job(job_id)

    assert planned is None
    assert halved == Rung(micro_batch=2, gradient_checkpointing=True)
    assert running["phase"] == "training"
    assert running["plan"]["micro_batch"] == 4
    assert running["rung"] == {"micro_batch": 1, "gradient_checkpointing": True}
    assert running["deepspeed"]["config"]["train_micro_batch_size_per_gpu"] == 1
    assert running["cost"]["forecast_total"]
    _, second, third = await _opening_messages(world, job_id)
    assert second.endswith(", with micro-batch 2 instead of 4: memory ran out in step 17")
    assert third.endswith(", with micro-batch 1 instead of 2: memory ran out in step 3")
    (attempt,) = await world.attempts_of(job_id)
    assert [g["rung"] and g["rung"]["micro_batch"] for g in attempt["generations"]] == [None, 2, 1]
    assert number == 3
    await evicted(world, job_id)
    await world.tick(2)
    await train(world, await boot(world, job_id), step=1)
    assert (await world.job(job_id))["rung"] == running["rung"], "on other machines too"


async def test_when_its_machines_go_before_the_next_generation_the_next_attempt_takes_the_rung(
    world: World,
) -> None:
    job_id = await _submit(world, 4, checkpointing=True)
    nodes = await boot(world, job_id)
    number = await train(world, nodes, step=1)
    await nodes[0].say(NodePhase.FAILED, number, step=1, out_of_memory=True)
    await nodes[1].notice(number, step=1)
    await nodes[1].say(NodePhase.STOPPED, number, step=1)
    await world.tick(2, seconds=1)
    other_nodes = await boot(world, job_id)
    await train(world, other_nodes, step=1)

    generation = other_nodes[0].last.generation if other_nodes[0].last else None
    assert generation is not None
    assert generation.rung == Rung(micro_batch=2, gradient_checkpointing=True)


async def test_out_of_memory_that_is_reported_after_a_stop_counts(world: World) -> None:
    job_id = await _submit(world, 4, checkpointing=True)
    nodes = await boot(world, job_id)
    number = await train(world, nodes, step=1)
    await nodes[1].say(NodePhase.FAILED, number, step=1, error="a peer is gone")
    await world.tick(1, seconds=1)
    directive = await nodes[0].hear()
    await nodes[0].say(NodePhase.STOPPED, number, step=1, out_of_memory=True)
    await train(world, nodes, step=1)

    assert directive.kind is DirectiveKind.STOP
    generation = nodes[0].last.generation if nodes[0].last else None
    assert generation is not None
    assert generation.rung == Rung(micro_batch=2, gradient_checkpointing=True)


async def test_a_job_that_does_not_fit_even_with_the_least_at_once_fails_and_says_what_to_do(
    world: World,
) -> None:
    job_id = await _submit(world, 2, checkpointing=False)
    nodes = await boot(world, job_id)
    rungs = [await _run_out_of_memory(world, nodes, step=1) for _ in range(3)]
    await world.tick(3)
    failed = await world.job(job_id)

    assert rungs == [
        None,
        Rung(micro_batch=1, gradient_checkpointing=False),
        Rung(micro_batch=1, gradient_checkpointing=True),
    ]
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "trainer_error"
    reason, log = failed["error"]["message"].splitlines()[:2]
    assert reason.startswith("memory ran out in step 1, and no less can be taken at once:")
    assert "micro-batch 2 and 1, then gradient_checkpointing, did not fit" in reason
    assert "a shorter max_seq_len" in reason
    assert log
