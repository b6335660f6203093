"""Rows to tokens: what is trained, what is refused, and what outlives a generation."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

from rendering.rows import read_answers, read_chat
from rendering.tokenizer import Tokenizer
from rendering.tokens import Tokens, tokenize_chat
from tests.unit.trainer.model.tiny_tokenizer import UNMARKED, tiny_tokenizer
from tests.unit.trainer.process.trainer_spec import ME, SPEC
from trainer.checkpoint.checksum import describe_file
from trainer.contract import InputFile, RunSpec
from trainer.data import tokenizing
from trainer.data.batch import padded
from trainer.data.prefetch import evaluation_batches
from trainer.data.rows import JsonlRows
from trainer.data.token_cache import RECORD, tokens_name
from trainer.data.tokens import TokenizedFile, TokenizedOnDemand, TokenSource, open_tokens
from trainer.process.non_retryable import NonRetryableError
from trainer.rundir import RunDir, SavedFile, write_atomically
from trainer.sample_data.tiny_chats import chats, write_samples
from trainer.tiny import CHAT_TEMPLATE, build_tokenizer

TOKENIZER = tiny_tokenizer()
SHORT = replace(SPEC, max_seq_len=24)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write some chats, one of them with an assistant turn that is not trained."""
    path = tmp_path / "train.jsonl"
    write_samples(path, rows=20, seed=3)
    chat = [
        {"role": "user", "content": "Hm?"},
        {"role": "assistant", "content": "No.", "weight": 0},
    ]
    with path.open("a") as f:
        f.write(json.dumps({"messages": chat}) + "\n")
    return path


@pytest.fixture
def fresh(data: Path) -> TokenizedOnDemand:
    return TokenizedOnDemand(data, TOKENIZER, SHORT)


@pytest.fixture
def earlier_tokens(fresh: TokenizedOnDemand, tmp_path: Path) -> Path:
    """Write the token file that an earlier generation has left and return its path."""
    path = tmp_path / "cache" / "tokens-a.safetensors"
    tokenizing.write_tokens(fresh, path)
    return path


def test_the_batches_of_a_cache_are_those_of_the_text_bit_by_bit(
    fresh: TokenizedOnDemand, earlier_tokens: Path
) -> None:
    cached = TokenizedFile(earlier_tokens)
    cached_batches, fresh_batches = _batches(cached), _batches(fresh)

    assert len(cached) == len(fresh) == 21
    assert [cached[n] for n in range(21)] == [fresh[n] for n in range(21)]
    assert all(
        torch.equal(a, b)
        for x, y in zip(cached_batches, fresh_batches, strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert not list(earlier_tokens.parent.glob(".*"))


@pytest.mark.parametrize("harm", ["cut", "foreign", "empty", "other format"])
def test_a_cache_that_is_no_good_is_made_again(
    harm: str,
    earlier_tokens: Path,
    data: Path,
    fresh: TokenizedOnDemand,
    caplog: pytest.LogCaptureFixture,
) -> None:
    content = earlier_tokens.read_bytes()
    spoiled = {
        "cut": content[:-1],
        "foreign": b"\x80\x04 pickled, perhaps",
        "empty": b"",
        "other format": content.replace(b"rekindle-tokens-1", b"rekindle-tokens-0"),
    }
    earlier_tokens.write_bytes(spoiled[harm])
    source = open_tokens(earlier_tokens, data, TOKENIZER, SHORT)

    assert isinstance(source, TokenizedOnDemand)
    assert source[0] == fresh[0]
    assert "tokenizing again" in caplog.text


def test_a_cache_of_another_length_or_date_or_tokenizer_or_text_has_another_name() -> None:
    file = SPEC.training_file
    other_text = replace(file, sha256="1" * 64)
    other_base = replace(SPEC.base_model, files=(replace(file, sha256="2" * 64),))
    weights = replace(file, path="base/model.safetensors")
    more_weights = replace(SPEC.base_model, files=(*SPEC.base_model.files, weights))
    name = tokens_name(SPEC, file)
    names = {
        name,
        tokens_name(replace(SPEC, max_seq_len=64), file),
        tokens_name(replace(SPEC, date="2026-02-03"), file),
        tokens_name(SPEC, other_text),
        tokens_name(replace(SPEC, base_model=other_base), file),
    }

    assert len(names) == 5
    assert tokens_name(replace(SPEC, base_model=more_weights), file) == name


def test_what_an_earlier_generation_has_left_is_not_made_again(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    before = tokenizing.missing_token_files(rundir, SPEC)
    rundir.cache.mkdir()
    (rundir.cache / tokens_name(SPEC, SPEC.training_file)).touch()

    assert before == [SPEC.training_file]
    assert tokenizing.missing_token_files(rundir, SPEC) == []


def test_a_row_that_the_template_refuses_is_named(data: Path) -> None:
    refusing = tiny_tokenizer("{{ raise_exception('roles must take turns') }}")

    with pytest.raises(ValueError, match=r"train\.jsonl, line 2: .*roles must take turns"):
        TokenizedOnDemand(data, refusing, SHORT)[1]


BREAKS = {
    "half a surrogate pair": {"role": "user", "content": "a\ud83d"},
    "a text that is a number": {"role": "user", "content": 7},
    "a message that is none": "Hm?",
}


@pytest.mark.parametrize("case", BREAKS)
def test_whatever_breaks_on_a_row_names_its_line(tmp_path: Path, case: str) -> None:
    path = tmp_path / "train.jsonl"
    messages = [BREAKS[case], {"role": "assistant", "content": "Yes."}]
    path.write_text("\n\n" + json.dumps({"messages": messages}) + "\n")

    with pytest.raises(NonRetryableError, match=r"^train\.jsonl, line 3: "):
        TokenizedOnDemand(path, TOKENIZER, SHORT)[0]


def test_nesting_too_deep_to_read_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"messages": []}\n' + "[" * 200_000 + "]" * 200_000)

    with pytest.raises(
        NonRetryableError, match=r"^train\.jsonl, line 2: not JSON .*nested too deeply"
    ):
        TokenizedOnDemand(path, TOKENIZER, SHORT)[1]


@pytest.mark.parametrize("error", [BaseException("a panic in Rust"), OverflowError("too big")])
def test_errors_that_are_none_of_pythons_own_name_the_line_too(
    data: Path, error: BaseException
) -> None:
    rows = JsonlRows(data, read_chat)

    with (
        pytest.raises(NonRetryableError, match=rf"line 4: {type(error).__name__}: "),
        rows.name_row_in_errors(3),
    ):
        raise error


@pytest.mark.parametrize("error", [OSError("gone"), MemoryError(), KeyboardInterrupt()])
def test_what_is_no_fault_of_a_row_stays_as_it_is(data: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), JsonlRows(data, read_chat).name_row_in_errors(3):
        raise error


class Watched:
    """Rows of which the third one is asked for when the trainer has just made room."""

    def __init__(self, rows: TokenSource, rundir: RunDir) -> None:
        self._rows, self._rundir = rows, rundir

    def __len__(self) -> int:
        return len(self._rows)

    def length(self, row: int) -> int:
        return self._rows.length(row)

    def __getitem__(self, row: int) -> Tokens:
        if row == 2:
            self._rundir.make_room()
        return self._rows[row]


def test_tokens_give_way_to_a_save(
    fresh: TokenizedOnDemand, earlier_tokens: Path, tmp_path: Path
) -> None:
    rundir = RunDir(tmp_path)
    with pytest.raises(FileNotFoundError, match="made room"):
        tokenizing.write_tokens(
            Watched(fresh, rundir), earlier_tokens.with_name("tokens-b.safetensors")
        )

    assert list(rundir.cache.iterdir()) == []
    assert not earlier_tokens.exists()


def _batches(source: TokenSource) -> list[tuple[torch.Tensor, ...]]:
    batches = evaluation_batches(source, TOKENIZER.pad_token_id, SPEC, ME)
    return [(b.ids, b.attention, b.labels) for b in batches]


def test_the_program_leaves_whole_files_with_their_records_and_ends_with_its_parent(
    tmp_path: Path, data: Path
) -> None:
    rundir, spec = _rundir(tmp_path, data)
    command = [sys.executable, "-m", "trainer.data.tokenizing", str(rundir.root)]
    result = subprocess.run(
        command, stdin=_open_for_ever(), capture_output=True, text=True, timeout=120, check=False
    )
    path = rundir.cache / tokens_name(spec, spec.training_file)
    assert spec.validation_file is not None
    broken = rundir.cache / tokens_name(spec, spec.validation_file)

    assert result.returncode == 0
    assert "line 1: not JSON" in result.stderr
    assert not list(rundir.cache.glob(f"*{broken.stem}*"))
    assert SavedFile.from_json(path.with_suffix(RECORD).read_bytes()) == describe_file(
        path, path.name
    )
    assert len(TokenizedFile(path)) == 21
    alone = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=120, check=False)
    assert alone.returncode == 0


def _open_for_ever() -> int:
    """Return the read end of a pipe that is never written to and never closed."""
    return os.pipe()[0]


def _rundir(folder: Path, data: Path) -> tuple[RunDir, RunSpec]:
    rundir = RunDir(folder / "run")
    model = rundir.input("base/r1/tokenizer.json").parent
    build_tokenizer().save_pretrained(model)
    files = tuple(
        InputFile(path=f"base/r1/{f.name}", size=f.stat().st_size, sha256="")
        for f in model.iterdir()
    )
    text = rundir.input(SPEC.training_file.path)
    write_atomically(text, data.read_bytes())
    broken = InputFile(path="files/valid.jsonl", size=1, sha256="")
    write_atomically(rundir.input(broken.path), b"{")
    base = replace(SPEC.base_model, files=files)
    spec = replace(SPEC, base_model=base, validation_file=broken)
    write_atomically(rundir.run_spec, spec.to_json())
    return rundir, spec


TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "What is 2 plus 2?"},
    {"role": "assistant", "content": "2 plus 2 is 4."},
    {"role": "user", "content": "And 3 plus 3?"},
    {"role": "assistant", "content": "3 plus 3 is 6."},
]
TODAY = date(2026, 2, 3)


def trained_text(tokenizer: Tokenizer, tokens: Tokens) -> str:
    ids = [i for i, trained in zip(tokens.ids, tokens.trained, strict=True) if trained]
    return str(tokenizer.decode(ids))


def test_a_member_that_is_null_is_not_there_and_a_content_that_is_null_is_empty() -> None:
    tokenizer = tiny_tokenizer(
        "{% for m in messages %}{{ m.name if m.name is defined else 'nameless' }}"
        "{% generation %}{{ m.content + '.' }}{% endgeneration %}{% endfor %}"
    )
    row = {"messages": [{"role": "assistant", "content": None, "name": None}]}

    assert tokenizer.decode(tokenize_chat(tokenizer, row, 512, TODAY).ids) == "nameless."


def test_templates_with_and_without_marks_train_the_same_tokens() -> None:
    plain = tiny_tokenizer(UNMARKED)
    for messages in chats(50, seed=3):
        row = {"messages": messages}
        tokens = tokenize_chat(plain, row, 512, TODAY)
        assert tokens == tokenize_chat(TOKENIZER, row, 512, TODAY)


def test_a_turn_that_is_not_trained_may_be_rewritten_later() -> None:
    """As Qwen 3 does, which forgets what was thought in earlier turns."""
    short = "message['content'][:3] if message['role'] == 'assistant' and not loop.last else "
    template = UNMARKED.replace("message['content']", f"({short}message['content'])")
    forgetful = tiny_tokenizer(template)
    answers = [TALK[2] | {"weight": 0}, TALK[4]]

    tokens = tokenize_chat(
        forgetful, {"messages": [*TALK[:2], answers[0], TALK[3], answers[1]]}, 512, TODAY
    )

    assert trained_text(forgetful, tokens) == "3 plus 3 is 6.<|end|>"
    with pytest.raises(ValueError, match="rewrites earlier turns"):
        tokenize_chat(forgetful, {"messages": TALK}, 512, TODAY)


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, UNMARKED])
def test_a_template_that_prints_the_date_prints_the_jobs(template: str) -> None:
    """As Llama's do; the second day shows that no earlier one sticks."""
    dated = tiny_tokenizer(
        "{%- if strftime_now is defined -%}{{- strftime_now('%d %b %Y') -}}{%- endif -%}" + template
    )
    for day, printed in ((TODAY, "03 Feb 2026"), (date(2024, 7, 26), "26 Jul 2024")):
        tokens = tokenize_chat(dated, {"messages": TALK}, 512, day)
        assert dated.decode(tokens.ids).startswith(printed)


def test_a_long_row_is_cut_and_may_be_left_without_a_target() -> None:
    tokens = tokenize_chat(TOKENIZER, {"messages": TALK}, 5, TODAY)

    assert len(tokens.ids) == len(tokens.trained) == 5
    assert padded([tokens], pad_id=0).targets == 0


def test_a_broken_row_is_named_by_its_line_as_an_editor_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"messages": []}\n\n\r\n{"messages"\n')

    with pytest.raises(NonRetryableError, match=r"rows\.jsonl, line 4: not JSON .* at column 12"):
        JsonlRows(path, read_chat)[1]


def test_a_preference_is_two_chats_of_which_the_answers_alone_are_trained() -> None:
    row = {
        "input": {"messages": TALK, "tools": None},
        "preferred_output": [{"role": "assistant", "content": "Yes."}],
        "non_preferred_completion": [{"role": "assistant", "content": "No way."}],
    }

    preferred, rejected = (tokenize_chat(TOKENIZER, c, 512, TODAY) for c in read_answers(row))

    answers = [trained_text(TOKENIZER, tokens).strip() for tokens in (preferred, rejected)]
    assert answers == ["Yes.<|end|>", "No way.<|end|>"]
    prompt = preferred.trained.index(True)
    assert preferred.ids[:prompt] == rejected.ids[:prompt]
    assert "weight" not in TALK[1]


@pytest.mark.parametrize(
    ("row", "lacks"),
    [
        ([], "`input` with a list `messages`"),
        ({"input": {"messages": TALK}, "preferred_output": []}, "a list `non_preferred_output`"),
    ],
)
def test_a_preference_that_lacks_something_says_what_it_needs(row: Any, lacks: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=lacks):
        read_answers(row)


def test_text_parts_and_the_developer_role_mean_what_they_say() -> None:
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "short."}]
    row = {"messages": [{"role": "developer", "content": parts}, *TALK[1:]]}

    plain = tokenize_chat(TOKENIZER, {"messages": TALK}, 512, TODAY)

    assert tokenize_chat(TOKENIZER, row, 512, TODAY) == plain
