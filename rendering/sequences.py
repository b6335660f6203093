"""Make the sequences of a row as a training run would."""

from dataclasses import dataclass

from rendering import rows
from rendering.answers import HistoryRewritten, RenderedChat
from rendering.chat import (
    render_checked_chat,
    render_prompt,
    render_text,
    trained_indexes,
)
from rendering.task import Task
from rendering.templates.chat_template import RenderError
from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer


@dataclass(frozen=True)
class SequenceProblem:
    """An error or a warning about a row."""

    code: str
    message: str
    is_error: bool = False


@dataclass(frozen=True)
class RowSequence:
    """A text to tokenize."""

    text: str
    rendered: RenderedChat | None  # None: the text has no answers
    row: Json
    is_plain: bool = False  # plain text, which gets special tokens around it


class SplitNeeded(Exception):
    """The template rewrites earlier answers, so each must be its own example."""


class RowReader:
    """Reads rows as the trainer does."""

    def __init__(self, tokenizer: Tokenizer, task: Task) -> None:
        self._tokenizer, self._task = tokenizer, task
        self._read = (
            rows.read_split_chats
            if task.splits_answers
            else rows.row_reader(task.method, has_answers=task.has_answers)
        )

    def sequences(self, row: object) -> list[RowSequence]:
        """Return the row's sequences; raise RenderError or RowError."""
        row_sequences = [self._sequence(chat) for chat in self._read(row)]
        if not row_sequences:
            raise RenderError("no answer of the row is trained: give one of them weight 1")
        return row_sequences

    def _sequence(self, chat: Json) -> RowSequence:
        tokenizer, today = self._tokenizer, self._task.today
        if self._task.method == "reinforcement":
            return RowSequence(render_prompt(tokenizer, chat, today), None, chat)
        if self._task.method == "classification":
            if "text" in chat:
                return RowSequence(chat["text"], None, chat, is_plain=True)
            return RowSequence(render_text(tokenizer, chat, today), None, chat)
        rendered = self._render_chat(chat)
        return RowSequence(rendered.text, rendered, chat)

    def _render_chat(self, chat: Json) -> RenderedChat:
        try:
            return render_checked_chat(self._tokenizer, chat, self._task.today)
        except HistoryRewritten as error:
            if trained_indexes(chat) == [len(chat["messages"]) - 1]:
                raise
            if self._task.has_answers:
                raise HistoryRewritten(
                    "the model's chat template renders an answer differently once another one "
                    "follows, so an output may have one message of the assistant only"
                ) from error
            raise SplitNeeded from error
