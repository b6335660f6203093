"""A row to classify becomes token ids, and after them the number of its class.

A text is tokenized as any program would, with the tokenizer's special tokens around it, so that
`pipeline("text-classification")` reads what was trained on. A chat goes through the chat template.
All that is read counts as trained: of a file of tokens nobody can tell, and metrics count it.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any

from trainer.data.chat import Tokens, chat_ids
from trainer.data.rows import Chat


def labelled(row: Any) -> tuple[Chat]:  # noqa: ANN401 - what json.loads gives
    """The row, which holds a text or a chat."""
    known = isinstance(row, dict) and isinstance(row.get("label"), str)
    if not known or not (isinstance(row.get("text"), str) or isinstance(row.get("messages"), list)):
        raise ValueError("needs a string `label`, and a string `text` or a list `messages`")
    return (row,)


def tokenize(
    tokenizer: Any,  # noqa: ANN401 - transformers is untyped here
    row: Chat,
    classes: Mapping[str, int],
    max_seq_len: int,
    today: date,
) -> Tokens:
    """Ids cut to the longest allowed length, then the class; ValueError for a row without either.

    A cut leaves a text's special tokens where they are.
    """
    if row["label"] not in classes:
        raise ValueError(f"label {row['label']!r} is none that the run was planned for")
    if "text" in row:
        ids = tokenizer(row["text"], truncation=True, max_length=max_seq_len)["input_ids"]
    elif tokenizer.chat_template is None:
        raise ValueError("the base model has no chat template; write the row with `text`")
    else:
        ids = chat_ids(tokenizer, row, today)[:max_seq_len]
    if not ids:
        raise ValueError("nothing is left of it as tokens")
    return Tokens([*ids, classes[row["label"]]], [True] * (len(ids) + 1))
