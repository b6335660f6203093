"""The model and the chats that are made on the spot."""

import hashlib
from pathlib import Path

from trainer.sample_data.tiny_chats import write_samples
from trainer.tiny import build


def digests(folder: Path) -> dict[str, str]:
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()}


def test_the_model_is_the_same_every_time(tmp_path: Path) -> None:
    build(tmp_path / "one")
    build(tmp_path / "two")

    made = digests(tmp_path / "one")
    assert made == digests(tmp_path / "two")
    assert set(made) >= {"config.json", "model.safetensors", "tokenizer.json"}


def test_samples_are_the_same_for_a_seed_and_more_of_them_begin_alike(tmp_path: Path) -> None:
    write_samples(tmp_path / "few.jsonl", rows=20, seed=1)
    write_samples(tmp_path / "many.jsonl", rows=40, seed=1)
    write_samples(tmp_path / "other.jsonl", rows=20, seed=2)
    few, many, other = (
        (tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("few", "many", "other")
    )

    assert many[:20] == few != other
