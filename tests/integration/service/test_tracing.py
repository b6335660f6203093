"""An evicted job is one trace: request, reconcilers, nodes and trainer."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service import span_providers, tracing
from service.api.app import make_app
from tests.nodes.scripted_node import boot, commit, committed, say_all, start_training, train
from tests.world import World, client
from trainer.contract import NodePhase, Span


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """Traces are exported while the test runs; these."""
    exporter = InMemorySpanExporter()
    tracing.install(span_providers.make(SimpleSpanProcessor(exporter)))
    yield exporter
    tracing.install({})


async def live(world: World) -> str:
    """Run a job that is evicted once and succeeds."""
    job, nodes, first = await start_training(world, step=3)
    start = world.clock().timestamp()
    load = Span(name="load_model", started_at=start, ended_at=start + 2)
    await nodes[0].say(NodePhase.RUNNING, first, step=3, spans=(load,))
    await nodes[1].notice(first, step=3)
    await world.tick(1, seconds=1)
    await commit(world, job, committed(4, first, "stop"))
    await say_all(nodes, NodePhase.STOPPED, first, step=4)
    await world.tick(2, seconds=1)
    new_nodes = await boot(world, job)
    second = await train(world, new_nodes, step=5)
    await commit(world, job, committed(10, second, "final"))
    await say_all(new_nodes, NodePhase.FINISHED, second, step=10)
    await world.tick(30)
    return job


def name_of(span: ReadableSpan) -> str:
    service = span.resource.attributes["service.name"]
    assert isinstance(service, str)
    return f"{service} {span.name}"


async def test_an_evicted_job_is_one_tree_of_spans_of_all_parts(
    world: World, exported: InMemorySpanExporter
) -> None:
    async with client(make_app(world.parts)) as http:
        job = await live(replace(world, http=http))

    trace_id = tracing.job_span(job).trace_id
    spans = [s for s in exported.get_finished_spans() if s.context.trace_id == trace_id]
    ids = {span.context.span_id: span for span in spans}
    roots = [span for span in spans if span.parent is None]
    names = {name_of(span) for span in spans}

    assert [name_of(root) for root in roots] == ["rekindle-service job"]
    assert all(span.parent.span_id in ids for span in spans if span.parent)
    assert len(ids) == len(spans)
    assert sum(span.name == "attempt" for span in spans) == 2
    assert names >= {
        "rekindle-service submit",
        "rekindle-service reconcile CreateScaleSet",
        "rekindle-service allocate",
        "rekindle-service delete",
        "rekindle-trainer load_model",
    }
    attributes = [dict(s.attributes or {}) for s in spans if s.name == "attempt"]
    assert {t["rekindle.attempt.outcome"] for t in attributes} == {"evicted", "succeeded"}


async def test_the_request_that_made_the_job_and_its_trace_are_linked(
    world: World, exported: InMemorySpanExporter
) -> None:
    foreign_parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with client(make_app(world.parts)) as http:
        http.headers["traceparent"] = foreign_parent
        job = (await replace(world, http=http).submit())["id"]

    posts = [s for s in exported.get_finished_spans() if s.name == "POST /v1/fine_tuning/jobs"]
    (submit,) = [s for s in exported.get_finished_spans() if s.name == "submit"]

    assert f"{posts[0].context.trace_id:032x}" == foreign_parent.split("-")[1]
    assert [link.context.trace_id for link in posts[0].links] == [tracing.job_span(job).trace_id]
    assert [link.context.span_id for link in submit.links] == [posts[0].context.span_id]


def test_nodes_are_given_the_attempts_place_in_the_trace_only_while_traces_are_exported(
    exported: InMemorySpanExporter,
) -> None:
    traceparent = tracing.traceparent("ftjob-1", "att-1")
    tracing.install({})

    assert traceparent.split("-")[1] == f"{tracing.job_span('ftjob-1').trace_id:032x}"
    assert tracing.traceparent("ftjob-1", "att-1") == ""
