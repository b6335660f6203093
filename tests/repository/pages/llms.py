"""docs/llms.txt, a list of all pages with their first sentences, for language models."""

import re

from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "llms.txt"
_HEAD = """\
# Rekindle

> A service that fine-tunes language models on Azure Spot GPUs behind OpenAI's fine-tuning API. It
> plans, prices, trains and checkpoints jobs, and resumes them bit for bit after evictions.
"""
_ENTRY = re.compile(r"^( *)- ([^:]+):(?: ([\w-]+\.md))?$", re.MULTILINE)


def page() -> str:
    """Return the whole file, in the format of llmstxt.org."""
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    lines = [_HEAD.rstrip("\n")]
    for _, title, name in _ENTRY.findall(navigation):
        if not name:
            lines += ["", f"## {title}", ""]
        elif name != "index.md":
            lines.append(f"- [{title}]({name}): {_first_sentence(name)}")
    return "\n".join(lines) + "\n"


def _first_sentence(name: str) -> str:
    paragraph = (ROOT / "docs" / name).read_text().split("\n\n")[1]
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.:])\s(?=[A-Z])", plain)[0]
