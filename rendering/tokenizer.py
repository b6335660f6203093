"""Load a model's tokenizer from its staged files; needs `tokenizers` only, not transformers.

What `tokenizer.json` says is what counts. Tokens that `tokenizer_config.json` adds to it are added
here as transformers does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as Backend

from rendering.conversation import find_call_form
from rendering.template import ChatTemplate, RenderError, Tools
from rendering.tool_calls import CallForm

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"  # of older releases of transformers
TEMPLATE = "chat_template.jinja"
NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
DEFAULT, WITH_TOOLS = "default", "tool_use"  # names where a model has several templates

# What transformers' class for a family takes where the model's files are silent.
_END = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_DEFAULTS: dict[str, dict[str, str]] = {
    "gpt2": _END,
    "bert": {
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    },
    "roberta": {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "cls_token": "<s>",
        "mask_token": "<mask>",
    },
}


class UnusableTokenizer(ValueError):
    """What is wrong with the files of a tokenizer, and what to do."""


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer with its special tokens and chat templates."""

    backend: Backend
    special_tokens: Mapping[str, str]  # such as "eos_token": "</s>"
    templates: Mapping[str, str] = field(default_factory=dict)  # name: Jinja source
    padding: str | None = None  # the token that fills up short rows, where it is not the model's

    def __post_init__(self) -> None:
        self.backend.no_truncation()  # a tokenizer.json may bring both along
        self.backend.no_padding()

    def __len__(self) -> int:
        return int(self.backend.get_vocab_size())

    @property
    def has_template(self) -> bool:
        """Whether chats can be rendered."""
        return bool(self.templates)

    def template(self, tools: Tools) -> ChatTemplate:
        """The template for a chat, which may be another one where tools are offered."""
        return self._compiled[self._template_name(tools)]

    def call_form(self, tools: Tools) -> CallForm:
        """The form in which that template wants tool calls."""
        return self._call_forms[self._template_name(tools)]

    def _template_name(self, tools: Tools) -> str:
        if not self.templates:
            raise UnusableTokenizer(
                "The base model has no chat template. Stage it with a chat_template.jinja, or take "
                "an instruct version of it."
            )
        return WITH_TOOLS if tools is not None and WITH_TOOLS in self.templates else DEFAULT

    @cached_property
    def _compiled(self) -> dict[str, ChatTemplate]:
        specials = self.special_tokens
        return {name: ChatTemplate(text, specials) for name, text in self.templates.items()}

    @cached_property
    def _call_forms(self) -> dict[str, CallForm]:
        return {name: find_call_form(template) for name, template in self._compiled.items()}

    def require_sound_templates(self) -> None:
        """Raise UnusableTokenizer for a template that is no Jinja."""
        for name, template in self._compiled.items():
            try:
                template.require_sound()
            except RenderError as error:
                raise UnusableTokenizer(
                    f"The base model's chat template ({name}) cannot be compiled: {error}. Correct "
                    "it, and stage the model again."
                ) from error

    def encode(self, text: str) -> Encoding:
        """Tokenize text that has its special tokens in it already."""
        return self.backend.encode(text, add_special_tokens=False)

    def encode_plain(self, text: str, longest: int) -> list[int]:
        """Tokenize a plain text with the model's special tokens around it, cut to ``longest``."""
        encoding = self.encode(text)
        encoding.truncate(max(longest - self.backend.num_special_tokens_to_add(False), 0))
        ids: list[int] = self.backend.post_process(encoding, None, True).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of these tokens."""
        return str(self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def token_id(self, name: str) -> int | None:
        """The id of a special token by its name, such as "eos_token"; None where there is none."""
        token = self.special_tokens.get(name)
        return None if token is None else self.backend.token_to_id(token)

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends an answer."""
        return self.token_id("eos_token")

    @property
    def pad_token(self) -> str:
        """The token that fills up short rows, the one that ends an answer if there is no other."""
        names = ("pad_token", "eos_token")
        found = self.padding or next(filter(None, map(self.special_tokens.get, names)), None)
        if found is None:
            raise UnusableTokenizer(
                f"The base model's tokenizer names neither an eos_token nor a pad_token. Name one "
                f"in {CONFIG}, and stage the model again."
            )
        return found

    @property
    def pad_token_id(self) -> int:
        """Its id."""
        found = self.backend.token_to_id(self.pad_token)
        assert found is not None, "special tokens are in the vocabulary"
        return found


def load(folder: Path) -> Tokenizer:
    """Read a model's tokenizer and chat templates; raise UnusableTokenizer."""
    if not (folder / TOKENIZER).is_file():
        raise UnusableTokenizer(
            f"The base model has no {TOKENIZER}. Convert its tokenizer: load it with transformers' "
            "AutoTokenizer, call save_pretrained, and stage the model again."
        )
    try:
        backend = Backend.from_file(str(folder / TOKENIZER))
    except Exception as error:  # the library raises bare Exception
        raise UnusableTokenizer(
            f"{TOKENIZER} of the base model cannot be read: {error}. Save it again with the "
            "current release of transformers, and stage the model again."
        ) from error
    config = _object(folder / CONFIG)
    specials = _special_tokens(folder, config)
    _add_tokens(backend, config, specials)
    tokenizer = Tokenizer(backend, specials, _templates(folder, config))
    tokenizer.require_sound_templates()
    return tokenizer


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    family = _object(folder / "config.json").get("model_type")
    found = dict(_DEFAULTS.get(str(family), {}))
    for source in (_object(folder / SPECIAL_TOKENS), config):
        for name in (f"{name}_token" for name in NAMES):
            token = source.get(name)
            text = token.get("content") if isinstance(token, dict) else token
            if isinstance(text, str):
                found[name] = text
    return found


def _add_tokens(backend: Backend, config: Mapping[str, Any], specials: Mapping[str, str]) -> None:
    """Add what the configuration names and the vocabulary lacks, in the order of the ids."""
    told = config.get("added_tokens_decoder") or {}
    added = [token for _, token in sorted(told.items(), key=lambda item: int(item[0]))]
    wanted = [AddedToken(**_flags(token)) for token in added]
    wanted += [AddedToken(token, special=True) for token in dict.fromkeys(specials.values())]
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_tokens([token for token in wanted if token.content not in known])


def _flags(token: Mapping[str, Any]) -> dict[str, Any]:
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {name: token[name] for name in names if name in token}


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """A file of its own goes before the configuration's, as in transformers."""
    if (folder / TEMPLATE).is_file():
        return {DEFAULT: (folder / TEMPLATE).read_text(encoding="utf-8")}
    told = config.get("chat_template")
    if isinstance(told, str):
        return {DEFAULT: told}
    if isinstance(told, list):
        named = {item["name"]: item["template"] for item in told}
        if DEFAULT not in named:
            names = ", ".join(sorted(named)) or "none"
            raise UnusableTokenizer(
                f"The base model's chat templates ({names}) have none that is named {DEFAULT!r}. "
                f"Write the one to train with to {TEMPLATE}, and stage the model again."
            )
        return named
    return {}


def _object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnusableTokenizer(
            f"{path.name} of the base model is not JSON ({error}). Restore it, and stage the model "
            "again."
        ) from error
    return found if isinstance(found, dict) else {}
