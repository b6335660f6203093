"""`python -m trainer.answer`: the answer alone on stdout, progress on stderr."""

import sys
from pathlib import Path

import pytest

from trainer import answer
from trainer.tiny import build


def test_an_answer_stands_alone_and_progress_says_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path / "model")
    capfd.readouterr()
    monkeypatch.setattr(sys, "argv", ["answer", str(tmp_path / "model"), "Hello?", "--tokens", "4"])

    assert answer.main() == 0

    said = capfd.readouterr()
    assert len(said.out.splitlines()) == 1
    assert said.err.index("loading") < said.err.index("answering")
    assert "Loading weights" not in said.err
