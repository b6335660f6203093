"""Replay of policies: traces, rivals, and the optimum that no policy beats."""

import json
import random
from pathlib import Path

import pytest

from bench.policy import ours, rivals
from bench.policy.lives import region
from bench.policy.nomad import SkyNomad
from bench.policy.optimum import optimum
from bench.policy.traces import BadTrace, read
from bench.policy.world import Capacity, ReplayWorld

UP, DOWN = [True] * 40, [False] * 40


def world(zones: int = 1, **fields: object) -> ReplayWorld:
    usual: dict[str, object] = {
        "work": 12,
        "deadline": 20,
        "cold": 2,
        "lost": 0,
        "ratio": 0.3,
        "egress": 0.0,
        "regions": tuple(f"region-{z}" for z in range(zones)),
        "tick_s": 300.0,
    }
    return ReplayWorld(**usual | fields)  # type: ignore[arg-type] # by name


def write(file: Path, data: object, gap: float = 300) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"metadata": {"gap_seconds": gap}, "data": data}))


def test_a_tree_with_other_files_and_several_gaps_is_read_folder_by_folder(tmp_path: Path) -> None:
    write(tmp_path / "a" / "one.json", [0, 4, "4"])
    write(tmp_path / "a" / "two.json", [4, 4, 4])
    write(tmp_path / "a" / "slow.json", [1, 0], gap=600)
    write(tmp_path / "b" / "c" / "deep.json", [0, 1])
    (tmp_path / "README.md").write_text("not a trace")

    folders = read(tmp_path, 4)

    assert [(f.name, f.gap_s, f.zones) for f in folders] == [
        ("a", 300.0, ("one", "two")),
        ("a", 600.0, ("slow",)),
        ("b/c", 300.0, ("deep",)),
    ]
    assert folders[0].capacity[0] == (False, True, True)


@pytest.mark.parametrize("text", ["{", '{"data": [1]}', '{"metadata": {"gap_seconds": 0}}', "[]"])
def test_a_file_that_is_no_trace_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)

    with pytest.raises(BadTrace, match=r"broken\.json"):
        read(tmp_path, 1)


@pytest.mark.parametrize(
    ("capacity", "cost"),
    [
        ([UP], 0.3 * 14),
        ([DOWN], 14.0),
        ([[False] * 6 + [True] * 34], 0.3 * 14),
        ([[True] * 8 + [False] * 32], 0.3 * 8 + 2 + 6),
    ],
    ids=["always Spot", "never Spot", "it pays to wait", "Spot and then on demand"],
)
def test_the_optimum_is_what_one_works_out_by_hand(capacity: Capacity, cost: float) -> None:
    assert optimum(world(), capacity, 0) == pytest.approx(cost)


def test_the_optimum_pays_for_a_checkpoint_that_moves_only_where_that_pays() -> None:
    capacity = [[True] * 8 + [False] * 32, [False] * 8 + [True] * 32]

    cheap = optimum(world(2, egress=0.5), capacity, 0)
    dear = optimum(world(2, egress=50.0), capacity, 0)

    assert cheap == pytest.approx(0.3 * 8 + 0.5 + 0.3 * 8)
    assert dear == pytest.approx(0.3 * 8 + 2 + 6)


def test_nobody_in_time_is_cheaper_than_the_optimum() -> None:
    draw = random.Random(5)
    for _ in range(12):
        capacity = [[draw.random() < 0.9 for _ in range(40)] for _ in range(2)]
        best = optimum(world(2), capacity, 0)
        policies: list[rivals.Policy] = [
            rivals.greedy,
            rivals.uniform_progress,
            rivals.on_demand,
            SkyNomad(),
        ]
        results = [rivals.play(policy, world(2), capacity, 0) for policy in policies]
        results.append(ours.play(world(2), capacity, 0, ours.empty_experience(world(2))))

        for result in results:
            late = result.finished is None or result.finished > 20
            assert late or result.cost >= best - 1e-9
    for rival in (rivals.greedy, rivals.uniform_progress):
        assert rivals.play(rival, world(), [UP], 0).cost == pytest.approx(0.3 * 14)
    assert rivals.play(rivals.spot_only, world(), [DOWN], 0).finished is None


def test_zones_of_a_region_are_known_by_name() -> None:
    assert [region(name) for name in ("us-east-1a_v100_1", "us-central1-a", "b")] == [
        "us-east-1",
        "us-central1",
        "b",
    ]
