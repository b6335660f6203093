"""`rekindle files preview`: rows as a model reads them, for people and programs."""

import json

from tests.integration.cli.conftest import Shell
from tests.vocabulary import tokenizer_files
from tests.world import MODEL, ROW, stage

PREVIEW = ("files", "preview")
TWO = {
    "messages": [
        {"role": "user", "content": "a\tb [[c]]"},
        {"role": "assistant", "content": "first", "weight": 0},
        {"role": "user", "content": "\x1b[31mred"},
        {"role": "assistant", "content": "one\ntwo"},
    ]
}


def file_of(shell: Shell, *rows: object) -> str:
    return shell.dataset("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


async def test_a_local_file_is_uploaded_once_and_its_rows_are_shown(shell: Shell) -> None:
    path = file_of(shell, ROW, TWO, ROW)
    result = await shell.run(*PREVIEW, path, "--model", MODEL, "-n", "2")
    third_line = await shell.run(*PREVIEW, path, "-m", MODEL, "--line", "3")
    file_rows = (await shell.run("files", "list", "--json")).json["data"]
    document = (await shell.run(*PREVIEW, path, "--model", MODEL, "--json")).json

    assert document["data"][0]["examples"][0]["trained_tokens"] == 6
    assert result.code == third_line.code == 0, result.err
    assert "line 1 (chat): 45 tokens, 6 trained" in result.out
    assert "assistant: [[Four.<|end|>]]" in result.out
    assert "line 2 (chat): " in result.out
    assert "line 3" not in result.out.replace("--line 3", "")
    assert f"rekindle files preview {file_rows[0]['id']} --model {MODEL} --line 3" in result.out
    assert "line 3 (chat): " in third_line.out
    assert len(file_rows) == 1


async def test_what_would_move_the_cursor_or_look_like_a_mark_is_written_out(shell: Shell) -> None:
    result = await shell.run(*PREVIEW, file_of(shell, TWO), "--model", MODEL)

    assert "a\u2409b \\[[c\\]]" in result.out
    assert "\u241b[31mred" in result.out
    assert "[[one\u21b5\ntwo<|end|>]]" in result.out
    assert "\x1b" not in result.out


async def test_colours_take_the_place_of_marks(shell: Shell) -> None:
    path = file_of(shell, TWO)
    arguments = (*PREVIEW, path, "--model", MODEL, "--max-seq-len", "67")
    coloured = await shell.run(*arguments, NO_COLOR="", FORCE_COLOR="1", TERM="xterm-256color")
    uncoloured = await shell.run(*arguments, NO_COLOR="1", FORCE_COLOR="1", TERM="xterm-256color")

    assert "\x1b[1;32mone\u21b5" in coloured.out
    assert "\x1b[2;9;31m<|end|>" in coloured.out
    assert "[[c]]" in coloured.out
    assert "[[one" not in coloured.out
    assert "[[one\u21b5\ntwo]]~~<|end|>~~" in uncoloured.out


async def test_problems_are_listed_and_examples_numbered(shell: Shell) -> None:
    pair = {
        "input": {"messages": [{"role": "user", "content": "2+2?"}]},
        "preferred_output": [{"role": "assistant", "content": "4"}],
        "non_preferred_output": [{"role": "assistant", "content": "4"}],
    }
    result = await shell.run(*PREVIEW, file_of(shell, pair), "--model", MODEL)

    assert "line 1, example 1 of 2 (preferred): 25 tokens, 2 trained" in result.out
    assert "line 1, example 2 of 2 (non-preferred): 25 tokens, 2 trained" in result.out
    assert "line 1: warning: the answers do not differ" in result.out
    assert "(answers_equal)" in result.out


async def test_labels_stand_beside_texts_and_split_answers_are_explained(shell: Shell) -> None:
    labelled = [{"text": "late", "label": label} for label in ("a", "b")]
    classes = await shell.run(*PREVIEW, file_of(shell, *labelled), "--model", MODEL)
    template = (
        "{% for m in messages %}{{ m.role + ': ' }}"
        "{% if m.role == 'assistant' and loop.last %}{{ '(hm) ' }}{% endif %}{{ m.content }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    await stage(shell.world.store, "rewriting", tokenizer=tokenizer_files(template))
    double_row = {"messages": [*ROW["messages"], *ROW["messages"]]}
    split = await shell.run(*PREVIEW, file_of(shell, double_row), "--model", "rewriting")

    assert "line 1 (labelled): 4 tokens, label 'a'" in classes.out
    assert "each trained answer is an example of its own" in split.out
    assert "line 1, example 2 of 2 (answer): " in split.out
