"""Whether a model's tokenizer files are read as transformers reads them."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from rendering.tokenizer import Tokenizer, UnusableTokenizer, read_tokenizer
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer
from trainer.check_model.architecture import check_tokenizer

Json = dict[str, Any]
BASE: Json = json.loads(tiny_tokenizer().backend.to_str())
SIZE = len(BASE["model"]["vocab"])
END, END_ID = "<|end|>", 2
NAMED = {"bos_token": "<|bos|>", "eos_token": END, "pad_token": "<|pad|>"}
PLAIN = {"tokenizer_class": "TokenizersBackend", **NAMED}
TEXTS = (
    "hi <|end|> there <|end|>\n x",
    "<|extra|> a <image> b<|tool|>c <Tool> <tool> <|new|> d",
    "two  spaces, \u00fcber\n\n",
)


def token(content: str, **flags: bool) -> Json:
    usual = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, "special": True, **usual, **flags}


def named_token(content: str, **flags: bool) -> Json:
    return {"__type": "AddedToken", **token(content, **flags)}


def listed(**tokens: Json) -> Json:
    return {"added_tokens_decoder": {number[1:]: token for number, token in tokens.items()}}


def changed(**flags: bool) -> Json:
    """tokenizer.json with other flags for the token that ends an answer."""
    base = copy.deepcopy(BASE)
    base["added_tokens"][END_ID] |= flags
    return base


def lower_cased() -> Json:
    added = [*BASE["added_tokens"], {"id": SIZE, **token("<Tool>", special=False, normalized=True)}]
    return BASE | {"added_tokens": added, "normalizer": {"type": "Lowercase"}}


def write(folder: Path, files: Json) -> Path:
    for name, content in {"tokenizer.json": BASE, "tokenizer_config.json": PLAIN, **files}.items():
        (folder / name).write_text(json.dumps(content))
    return folder


CUT = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
PAD = {"direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "<|pad|>"}
PAD |= {"strategy": {"Fixed": 16}, "pad_to_multiple_of": None}
KINDS: dict[str, Json] = {
    "plain": {},
    "tokens that tokenizer.json lacks": {
        "tokenizer_config.json": PLAIN
        | listed(_9001=token("<|tool|>"), _9000=token("<|extra|>", special=False))
    },
    "flags that only the configuration sets": {
        "tokenizer_config.json": PLAIN | listed(_2=token(END, lstrip=True, rstrip=True))
    },
    "flags that the configuration takes back": {
        "tokenizer.json": changed(lstrip=True, rstrip=True),
        "tokenizer_config.json": PLAIN | listed(_2=token(END)),
    },
    "flags of tokenizer.json": {"tokenizer.json": changed(lstrip=True, rstrip=True)},
    "a token read before the text is changed": {
        "tokenizer.json": lower_cased(),
        "tokenizer_config.json": PLAIN | listed(**{f"_{SIZE}": token("<Tool>", special=False)}),
    },
    "names in the older file": {
        "tokenizer_config.json": {"tokenizer_class": "TokenizersBackend"},
        "special_tokens_map.json": {name: token(text) for name, text in NAMED.items()},
    },
    "other names in the older file": {"special_tokens_map.json": NAMED | {"eos_token": "<|pad|>"}},
    "other names in the older file, which a list makes void": {
        "tokenizer_config.json": PLAIN | listed(_2=token(END)),
        "special_tokens_map.json": NAMED | {"eos_token": "<|pad|>"},
    },
    "names with flags": {
        "tokenizer_config.json": PLAIN | {"eos_token": named_token("<|new|>", rstrip=True)}
    },
    "a name of a new token": {"tokenizer_config.json": PLAIN | {"eos_token": "<|new|>"}},
    "special tokens without a name": {
        "tokenizer_config.json": PLAIN | {"additional_special_tokens": ["<|extra|>", "<|tool|>"]}
    },
    "special tokens without a name, newer": {
        "tokenizer_config.json": PLAIN | {"extra_special_tokens": ["<|extra|>", "<|tool|>"]}
    },
    "special tokens without a name, older": {
        "special_tokens_map.json": {"additional_special_tokens": ["<|extra|>"]}
    },
    "special tokens with a name of the model": {
        "tokenizer_config.json": PLAIN | {"extra_special_tokens": {"image_token": "<image>"}}
    },
    "a name of the model": {"tokenizer_config.json": PLAIN | {"image_token": "<image>"}},
    "the oldest list of added tokens": {
        "added_tokens.json": {"<|extra|>": SIZE + 1, "<|tool|>": SIZE}
    },
    "cut and filled": {"tokenizer.json": BASE | {"truncation": CUT, "padding": PAD}},
    "a space before each text": {
        "tokenizer.json": BASE
        | {"pre_tokenizer": BASE["pre_tokenizer"] | {"add_prefix_space": True}}
    },
    "a space that the configuration wants": {
        "tokenizer_config.json": PLAIN | {"add_prefix_space": True}
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_names_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    write(tmp_path, KINDS[kind])
    tokenizer, reference = read_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)

    for text in TEXTS:
        assert tokenizer.encode(text).ids == reference(text, add_special_tokens=False).input_ids
    assert dict(tokenizer.special_tokens) == reference.special_tokens_map
    assert check_tokenizer(tmp_path, is_encoder=False).warnings == []


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, "gpt2"),
        ({"tokenizer_class": "Qwen2Tokenizer", "unk_token": END}, "qwen2"),
    ],
)
def test_a_family_whose_class_reads_otherwise_is_warned_about(
    config: Json, family: str, tmp_path: Path
) -> None:
    files = {"tokenizer_config.json": {**NAMED, **config}, "config.json": {"model_type": family}}
    (warning,) = check_tokenizer(write(tmp_path, files), is_encoder=False).warnings

    assert "as other tokens than transformers does" in warning


def test_a_family_that_reads_spaces_after_special_tokens_otherwise_is_warned_about(
    tmp_path: Path,
) -> None:
    """Llama 2's tokenizer.json writes a space there; transformers' class for it does not."""
    (warning,) = check_tokenizer(write(tmp_path, llama_2()), is_encoder=False).warnings

    assert "LlamaTokenizer" in warning


def llama_2() -> Json:
    specials = ["<unk>", "<s>", "</s>"]
    letters = [f"<0x{byte:02X}>" for byte in range(256)]
    letters += list("\u2581abcdefghijklmnopqrstuvwxyz")
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    backend = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "pre_tokenizer": None,
        "added_tokens": [{"id": n, **token(text)} for n, text in enumerate(specials)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, spaces],
        },
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "byte_fallback": True,
            "fuse_unk": True,
            "vocab": {text: n for n, text in enumerate([*specials, *letters])},
            "merges": [],
        },
    }
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return {
        "tokenizer.json": backend,
        "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "legacy": True, **names},
        "config.json": {"model_type": "llama"},
    }


def test_templates_are_read_by_name_from_a_folder_or_from_the_configuration(tmp_path: Path) -> None:
    write(tmp_path, {})
    (tmp_path / "chat_template.jinja").write_text("default")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    tokenizer, reference = read_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)

    assert (
        dict(tokenizer.templates)
        == reference.chat_template
        == {"default": "default", "tool_use": "tools"}
    )
    assert used(tokenizer, None) == "default"
    assert used(tokenizer, [{}]) == "tools"

    named = [{"name": n, "template": n} for n in ("default", "tool_use", "rag")]
    (tmp_path / "listed").mkdir()
    folder = write(tmp_path / "listed", {"tokenizer_config.json": PLAIN | {"chat_template": named}})
    tokenizer, reference = read_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    assert dict(tokenizer.templates) == reference.chat_template
    assert used(tokenizer, [{}]) == "tool_use"


def used(tokenizer: Tokenizer, tools: list[Json] | None) -> str:
    return tokenizer.template(tools).source


@pytest.mark.parametrize("wrong", [["<a>"], {"x": {"content": "<a>"}}, {"1": "<a>"}])
def test_a_list_of_added_tokens_that_cannot_be_read_is_named(wrong: object, tmp_path: Path) -> None:
    write(tmp_path, {"tokenizer_config.json": PLAIN | {"added_tokens_decoder": wrong}})

    with pytest.raises(UnusableTokenizer, match=r"tokens that tokenizer_config\.json"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("names", "template", "pads"),
    [
        (("<|endoftext|>", "<repo_name>"), "", "<|endoftext|>"),  # SmolLM2
        (("<|reserved_0|>", "<|endoftext|>"), "", "<|reserved_0|>"),
        (("<repo_name>", "<|user|>"), "{{ '<|user|>' }}", "<repo_name>"),
    ],
)
def test_a_head_is_padded_with_a_token_that_neither_texts_nor_templates_hold(
    names: tuple[str, str], template: str, pads: str, tmp_path: Path
) -> None:
    special = [token(END), *map(token, names)]
    added = [{"id": SIZE + number, **members} for number, members in enumerate(special)]
    config = {"eos_token": END, "pad_token": END, "chat_template": template}
    write(
        tmp_path,
        {"tokenizer.json": BASE | {"added_tokens": added}, "tokenizer_config.json": config},
    )

    assert read_tokenizer(tmp_path).pad_token == END
    assert read_tokenizer(tmp_path, "reward").pad_token == pads


def test_a_model_whose_special_tokens_are_all_taken_cannot_get_a_head(tmp_path: Path) -> None:
    added = [{"id": SIZE, **token(END)}]
    config = {"eos_token": END, "pad_token": END}
    write(
        tmp_path,
        {"tokenizer.json": BASE | {"added_tokens": added}, "tokenizer_config.json": config},
    )

    with pytest.raises(UnusableTokenizer, match="no special token to pad with"):
        read_tokenizer(tmp_path, "classification")
