"""Build the timeline of an attempt from the service's moves and its nodes' spans. Pure.

The nodes' spans are in the service's time already. Where nodes measure something themselves, the
service's own estimate is left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from service.domain import humanize
from service.domain.states import AttemptState
from trainer.contract import DirectiveKind, Span

_LATEST = 4e9  # unix seconds; a clock that says more is not worth showing
_SPAN_NAMES = {"vm_boot": "boot"}  # the nodes' names for what has another one here
_TITLES = {
    "create": "Asking Azure for the machines",
    "allocate": "Azure allocates the machines",
    "boot": "The machines boot",
    "pull_image": "Pulling the trainer image",
    "start_supervisor": "Starting the supervisor",
    "join": "The supervisor joins the service",
    "wait_for_nodes": "Waiting until every machine has joined",
    "prefetch": "Fetching model and data while waiting",
    "fetch_inputs": "Fetching model and data",
    "fetch_checkpoint": "Fetching the checkpoint",
    "start_trainer": "Starting the trainer",
    "load": "Loading, all in all",
    "load_imports": "Loading the libraries",
    "load_world": "The trainer's processes find each other",
    "load_wait": "Waiting for the files that are loaded",
    "load_model": "Loading the model",
    "load_checkpoint": "Loading the checkpoint",
    "first_validation": "The validation loss before training",
    "first_step": "The first training step",
    "train": "Training",
    "export": "Writing the final model",
    "verify": "Verifying the final model",
    "save": "Saving a checkpoint before stopping",
    "stop": "Stopping the trainer",
    "delete": "Deleting the machines",
}


@dataclass(frozen=True, kw_only=True)
class NodeTime:
    """The spans of one node; ``registered_at`` is by the service's clock."""

    registered_at: datetime
    spans: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True)
class GenerationTimes:
    """The times of one generation."""

    opened_at: datetime
    halted_at: datetime | None
    halt_kind: DirectiveKind | None
    number: int = 0
    nodes: int = 0


@dataclass(frozen=True, kw_only=True)
class TimelineSpan:
    """One span of the attempt's time; ``ended_at`` None: it goes on."""

    name: str
    started_at: datetime
    ended_at: datetime | None
    generation: int = 0  # that trains or is stopped; 0 where it is none's alone
    nodes: int = 0  # of that generation, where they are not always as many

    @property
    def is_known(self) -> bool:
        """Return whether the name is one of ours; nodes may send any."""
        return self.name in _TITLES

    @property
    def title(self) -> str:
        """Return the title of the span for people."""
        title = _TITLES.get(self.name, self.name.replace("_", " ").capitalize())
        return f"{title} on {humanize.count_machines(self.nodes)}" if self.nodes else title


def timeline(
    moves: Mapping[AttemptState, datetime],
    worlds: Sequence[GenerationTimes],
    nodes: Sequence[NodeTime],
) -> list[TimelineSpan]:
    """Return every known span, by its start; spans of different nodes are merged."""
    measured = _measured(nodes, worlds)
    entries = [
        *_moves(moves, measured, nodes),
        *_generation_spans(moves, worlds, measured),
        *measured,
    ]
    return sorted(entries, key=lambda e: (e.started_at, e.ended_at or _at(_LATEST)))


def _moves(
    moves: Mapping[AttemptState, datetime],
    measured: Sequence[TimelineSpan],
    nodes: Sequence[NodeTime],
) -> Iterable[TimelineSpan]:
    """Yield the spans of what the service did with the scale set."""
    state = AttemptState
    over_at = moves.get(state.TERMINATING) or moves.get(state.ENDED)
    if pending := moves.get(state.PENDING):
        requested_at = moves.get(state.PROVISIONING)
        yield TimelineSpan(name="create", started_at=pending, ended_at=requested_at or over_at)
    if requested_at := moves.get(state.PROVISIONING):
        granted_at = moves.get(state.STARTING)
        yield TimelineSpan(name="allocate", started_at=requested_at, ended_at=granted_at or over_at)
    if (granted_at := moves.get(state.STARTING)) and not _has_span(measured, "boot"):
        joined = min((n.registered_at for n in nodes), default=None)
        yield TimelineSpan(name="boot", started_at=granted_at, ended_at=joined or over_at)
    if terminating_at := moves.get(state.TERMINATING):
        yield TimelineSpan(
            name="delete", started_at=terminating_at, ended_at=moves.get(state.ENDED)
        )


def _generation_spans(
    moves: Mapping[AttemptState, datetime],
    worlds: Sequence[GenerationTimes],
    measured: Sequence[TimelineSpan],
) -> Iterable[TimelineSpan]:
    """Yield the spans of each generation, from when the machines had joined."""
    terminating_at = moves.get(AttemptState.TERMINATING)
    joined = [e.ended_at for e in measured if e.name == "join" and e.ended_at]
    if joined and not _has_span(measured, "wait_for_nodes"):
        opened_at = worlds[0].opened_at if worlds else terminating_at
        first = min(joined) if opened_at is None else min(*joined, opened_at)
        yield TimelineSpan(name="wait_for_nodes", started_at=first, ended_at=opened_at)
    sizes = {world.nodes for world in worlds}
    for number, world in enumerate(worlds):
        following = worlds[number + 1].opened_at if number + 1 < len(worlds) else terminating_at
        halted = world.halted_at
        steps = [
            e.started_at
            for e in measured
            if e.name == "first_step"
            and e.started_at >= world.opened_at
            and (following is None or e.started_at < following)
        ]
        if steps and (halted is None or min(steps) < halted):  # told to stop while it loaded
            yield TimelineSpan(
                name="train",
                started_at=min(steps),
                ended_at=halted or following,
                generation=world.number,
                nodes=world.nodes if len(sizes) > 1 else 0,
            )
        if halted is not None:
            is_save = world.halt_kind is DirectiveKind.CHECKPOINT_AND_STOP
            name = "save" if is_save else "stop"
            yield TimelineSpan(
                name=name, started_at=halted, ended_at=following, generation=world.number
            )


def _has_span(measured: Sequence[TimelineSpan], name: str) -> bool:
    return any(e.name == name for e in measured)


def _measured(nodes: Sequence[NodeTime], worlds: Sequence[GenerationTimes]) -> list[TimelineSpan]:
    """Return the nodes' own spans, merged: the first of a name on each node, the second, ...

    A machine that came later, in place of a lost one, has spans apart from the first ones.
    """
    merged: dict[tuple[str, int, int], TimelineSpan] = {}
    for node in nodes:
        late = sum(w.opened_at < node.registered_at for w in worlds)
        counts: Counter[str] = Counter()
        for span in sorted(node.spans, key=lambda s: s.started_at):
            name = _SPAN_NAMES.get(span.name, span.name)
            key = (name, counts[name], late)
            counts[name] += 1
            started, ended = _at(span.started_at), _at(span.ended_at)
            if previous := merged.get(key):
                started = min(started, previous.started_at)
                ended = max(ended, previous.ended_at or ended)
            merged[key] = TimelineSpan(name=name, started_at=started, ended_at=ended)
    return list(merged.values())


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0.0), _LATEST), UTC)
