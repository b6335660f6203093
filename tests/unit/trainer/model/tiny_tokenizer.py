"""The tiny model's tokenizer, with its own chat template or with another."""

from functools import lru_cache

from tokenizers import Tokenizer as Backend

from rendering.tokenizer import DEFAULT, Tokenizer
from trainer.tiny import CHAT_TEMPLATE, build_tokenizer

UNMARKED = CHAT_TEMPLATE.replace("{%- generation -%}", "").replace("{%- endgeneration -%}", "")


def tiny_tokenizer(template: str = CHAT_TEMPLATE) -> Tokenizer:
    """Return a new tokenizer that renders chats with ``template``."""
    text, specials = _built()
    return Tokenizer(Backend.from_str(text), specials, {DEFAULT: template})


@lru_cache
def _built() -> tuple[str, dict[str, str]]:
    built = build_tokenizer()
    return built.backend_tokenizer.to_str(), built.special_tokens_map
