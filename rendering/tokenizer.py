"""Load a model's tokenizer from its staged files with `tokenizers`, without transformers.

`tokenizer.json` is authoritative. Tokens that other files add or change are applied as transformers
does; `trainer.check_model.architecture` compares both when a model is staged.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as Backend

from rendering.templates.chat_template import ChatTemplate, RenderError, Tools
from rendering.templates.conversation import find_call_form
from rendering.templates.tool_calls import CallForm

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"  # of older releases of transformers
ADDED_TOKENS = "added_tokens.json"  # likewise
TEMPLATE = "chat_template.jinja"
TEMPLATES = "additional_chat_templates"  # a folder
LISTED = "added_tokens_decoder"  # member of the configuration: tokens by id
NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
HEAD_METHODS = ("reward", "classification")  # train a head that returns scores, not tokens
SPARE = ("pad", "reserved", "unused", "control", "unk", "endoftext")  # in names of tokens
DEFAULT, WITH_TOOLS = "default", "tool_use"  # names where a model has several templates

# Defaults of transformers' class for a model family.
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
    """The tokenizer's files are invalid; the message says what to do."""


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer with its special tokens and chat templates."""

    backend: Backend
    special_tokens: Mapping[str, str]  # such as "eos_token": "</s>"
    templates: Mapping[str, str] = field(default_factory=dict)  # name: Jinja source
    padding: str | None = None  # padding token, if not the model's own

    def __post_init__(self) -> None:
        self.backend.no_truncation()  # a tokenizer.json may enable both
        self.backend.no_padding()

    def __len__(self) -> int:
        return int(self.backend.get_vocab_size())

    def template(self, tools: Tools) -> ChatTemplate:
        """Return the template for a chat; chats with tools may have their own."""
        return self._compiled[self._template_name(tools)]

    def call_form(self, tools: Tools) -> CallForm:
        """Return the form of tool calls that this template expects."""
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

    def require_valid_templates(self) -> None:
        """Raise UnusableTokenizer for a template that is not valid Jinja."""
        for name, template in self._compiled.items():
            try:
                template.require_valid()
            except RenderError as error:
                raise UnusableTokenizer(
                    f"The base model's chat template ({name}) cannot be compiled: {error}. Correct "
                    "it, and stage the model again."
                ) from error

    def encode(self, text: str) -> Encoding:
        """Tokenize text that already contains its special tokens."""
        return self.backend.encode(text, add_special_tokens=False)

    def encode_plain(self, text: str, longest: int) -> list[int]:
        """Tokenize plain text with special tokens around it, cut to ``longest`` tokens."""
        encoding = self.encode(text)
        encoding.truncate(max(longest - self.backend.num_special_tokens_to_add(False), 0))
        ids: list[int] = self.backend.post_process(encoding, None, True).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of these tokens."""
        return str(self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def token_id(self, name: str) -> int | None:
        """Return the id of a special token by name, such as "eos_token"; None if there is none."""
        token = self.special_tokens.get(name)
        return None if token is None else self.backend.token_to_id(token)

    @property
    def eos_token_id(self) -> int | None:
        """Id of the token that ends an answer."""
        return self.token_id("eos_token")

    @property
    def pad_token(self) -> str:
        """The padding token; the end-of-answer token if there is no other."""
        names = ("pad_token", "eos_token")
        token = self.padding or next(filter(None, map(self.special_tokens.get, names)), None)
        if token is None:
            raise UnusableTokenizer(
                f"The base model's tokenizer names neither an eos_token nor a pad_token. Name one "
                f"in {CONFIG}, and stage the model again."
            )
        return token

    @property
    def pad_token_id(self) -> int:
        """Id of the padding token."""
        token_id = self.backend.token_to_id(self.pad_token)
        assert token_id is not None, "special tokens are in the vocabulary"
        return token_id


def read_tokenizer(folder: Path, method: str = "supervised") -> Tokenizer:
    """Load a model's tokenizer and chat templates; raise UnusableTokenizer.

    For a model with a head, the padding token differs from the token that ends answers: the head
    reads the last token that is not padding, which would otherwise not be the answer's end.
    """
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
    config = _read_object(folder / CONFIG)
    settings = _merged_settings(folder, config)
    specials = _special_tokens(folder, settings)
    required = [*specials.values(), *_extra_tokens(settings)]
    _add_tokens(backend, _listed_tokens(folder, backend, config, required), required)
    names = {name: str(token.content) for name, token in specials.items()}
    tokenizer = Tokenizer(backend, names, _read_templates(folder, config))
    tokenizer.require_valid_templates()
    if method in HEAD_METHODS and tokenizer.pad_token == names.get("eos_token"):
        tokenizer = replace(tokenizer, padding=_spare_token(tokenizer))
    return tokenizer


def _spare_token(tokenizer: Tokenizer) -> str:
    """Return a special token that neither texts nor templates use, likeliest names first."""
    used = {tokenizer.special_tokens.get(name) for name in ("eos_token", "bos_token")}
    added = sorted(tokenizer.backend.get_added_tokens_decoder().items())
    special = [token.content for _, token in added if token.special and token.content not in used]
    for likely_name in SPARE:
        for token in special:
            if likely_name in token.lower():
                return str(token)
    templates = "".join(tokenizer.templates.values())
    for token in reversed(special):
        if token not in templates:
            return str(token)
    raise UnusableTokenizer(
        "The base model's vocabulary has no special token to pad with but those of its chat "
        "template. Add one to its tokenizer and stage the model again, or train another base model."
    )


def _merged_settings(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration merged with the older file of special tokens.

    The older file wins if the configuration lists no added tokens, as in transformers; otherwise
    it fills in what the configuration lacks.
    """
    older = {name: value for name, value in _read_object(folder / SPECIAL_TOKENS).items() if value}
    own = {name: value for name, value in config.items() if value is not None}
    return older | own if LISTED in config else own | older


def _special_tokens(folder: Path, settings: Mapping[str, Any]) -> dict[str, AddedToken]:
    """Return special tokens by name; a model may add names, such as "image_token"."""
    family = _read_object(folder / "config.json").get("model_type")
    extra = settings.get("extra_special_tokens")
    named = {**settings, **(extra if isinstance(extra, dict) else {})}
    defaults = {f"{name}_token": None for name in NAMES}
    candidates = defaults | _DEFAULTS.get(str(family), {})
    candidates |= {name: token for name, token in named.items() if name.endswith("_token")}
    tokens = {name: _special_token(token) for name, token in candidates.items()}
    return {name: token for name, token in tokens.items() if token is not None}


def _extra_tokens(settings: Mapping[str, Any]) -> list[AddedToken]:
    """Return special tokens without a name."""
    values = (settings.get(f"{kind}_special_tokens") for kind in ("extra", "additional"))
    lists = (tokens for tokens in values if isinstance(tokens, list))
    return [token for token in map(_special_token, next(lists, [])) if token is not None]


def _special_token(token: object) -> AddedToken | None:
    if isinstance(token, str):
        return AddedToken(token, special=True)
    if isinstance(token, dict) and isinstance(token.get("content"), str):
        return AddedToken(**_token_flags(token) | {"special": True})
    return None


def _listed_tokens(
    folder: Path, backend: Backend, config: Mapping[str, Any], specials: Sequence[AddedToken]
) -> list[AddedToken]:
    """Return tokens that files list with ids, in the order of ids."""
    try:
        if LISTED in config:
            tokens = {
                int(n): AddedToken(**_token_flags(t)) for n, t in (config[LISTED] or {}).items()
            }
        else:
            tokens = _read_older_tokens(folder, [token.content for token in specials])
            tokens |= backend.get_added_tokens_decoder()
    except (AttributeError, TypeError, ValueError) as error:
        raise UnusableTokenizer(
            f"The tokens that {CONFIG} or {ADDED_TOKENS} of the base model adds cannot be read "
            f"({error}). Restore the file, and stage the model again."
        ) from error
    return [token for _, token in sorted(tokens.items())]


def _read_older_tokens(folder: Path, specials: Sequence[str]) -> dict[int, AddedToken]:
    added = _read_object(folder / ADDED_TOKENS)
    return {
        int(n): AddedToken(text, normalized=text not in specials, special=text in specials)
        for text, n in added.items()
    }


def _add_tokens(
    backend: Backend, listed: Sequence[AddedToken], specials: Sequence[AddedToken]
) -> None:
    """Add tokens that the vocabulary lacks; listed tokens may replace existing ones."""
    existing = backend.get_added_tokens_decoder().values()
    flags = {repr(token) for token in existing}
    missing = [token for token in listed if repr(token) not in flags]
    contents = {token.content for token in (*existing, *missing)}
    for token in specials:
        if token.content not in contents:
            contents.add(token.content)
            missing.append(token)
    backend.add_tokens(missing)


def _token_flags(token: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(token, dict) or not isinstance(token.get("content"), str):
        raise TypeError(f"{token!r:.60} is no token")
    names = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return {name: token[name] for name in names if name in token}


def _read_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return chat templates by name; template files win over the configuration."""
    named = {path.stem: path for path in (folder / TEMPLATES).glob("*.jinja")}
    files = named | ({DEFAULT: folder / TEMPLATE} if (folder / TEMPLATE).is_file() else {})
    if files:
        return _require_default({n: f.read_text(encoding="utf-8") for n, f in files.items()})
    template = config.get("chat_template")
    if isinstance(template, str):
        return {DEFAULT: template}
    if isinstance(template, list):
        return _require_default({item["name"]: item["template"] for item in template})
    return {}


def _require_default(named: dict[str, str]) -> dict[str, str]:
    if DEFAULT not in named:
        names = ", ".join(sorted(named)) or "none"
        raise UnusableTokenizer(
            f"The base model's chat templates ({names}) have none that is named {DEFAULT!r}. "
            f"Write the one to train with to {TEMPLATE}, and stage the model again."
        )
    return named


def _read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnusableTokenizer(
            f"{path.name} of the base model is not JSON ({error}). Restore it, and stage the model "
            "again."
        ) from error
    return document if isinstance(document, dict) else {}
