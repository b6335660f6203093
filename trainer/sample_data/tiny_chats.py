"""Made-up chats that a very small model can learn: sums, opposites, spelling, days, a shop's FAQ.

Everything is drawn from one `random.Random`, so the same seed gives the same chats.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

Message = dict[str, str]
Messages = list[Message]
Turn = tuple[str, str]  # user's message, assistant's answer

SYSTEM = "You are the assistant of a small shop. Answer in one short sentence."
OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "fast": "slow",
    "open": "closed",
    "early": "late",
    "full": "empty",
    "light": "dark",
    "wet": "dry",
    "young": "old",
    "near": "far",
    "loud": "quiet",
    "hard": "soft",
}
WORDS = ("apple", "bread", "chair", "dress", "eagle", "flute", "grape", "honey", "knife", "lemon")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PRICES = {"tea": 3, "coffee": 4, "soup": 6, "cake": 5, "juice": 2, "salad": 7}
FACTS = {
    "When do you open?": "We open at nine every morning.",
    "When do you close?": "We close at six every evening.",
    "Where are you?": "We are at 12 Mill Lane, beside the bridge.",
    "Can I pay by card?": "Yes, cards and cash are both welcome.",
    "Do you deliver?": "Yes, we deliver within five miles.",
    "May I bring my dog?": "Yes, quiet dogs are welcome here.",
}


def chat(random: Random) -> Messages:
    """Return a conversation of one to three questions."""
    messages = [{"role": "system", "content": SYSTEM}] if random.random() < 0.5 else []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        question, answer = random.choice(KINDS)(random)
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer})
    return messages


def chats(rows: int, seed: int) -> Iterator[Messages]:
    """Yield ``rows`` conversations; more rows with the same seed begin with the same ones."""
    random = Random(seed)  # noqa: S311 - sample text, not secrets
    for _ in range(rows):
        yield chat(random)


def preferences(rows: int, seed: int) -> Iterator[tuple[Messages, Message, Message]]:
    """Yield ``rows`` prompts, each with the right answer and that of another question."""
    random = Random(seed)  # noqa: S311
    for _ in range(rows):
        *prompt, right = chat(random)
        wrong = right
        while wrong == right:
            wrong = chat(random)[-1]
        yield prompt, right, wrong


def rankings(rows: int, seed: int) -> Iterator[tuple[Messages, Messages]]:
    """Yield ``rows`` prompts with ranked answers: right, wrong and, in every other row, garbled."""
    for number, (prompt, right, wrong) in enumerate(preferences(rows, seed)):
        garbled = wrong | {"content": wrong["content"][::-1]}
        yield prompt, [right, wrong, garbled][: 2 + number % 2]


def write_samples(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` chats, one JSON object a line."""
    _write_rows(path, ({"messages": messages} for messages in chats(rows, seed)))


def write_preferences(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` preferences, one JSON object a line."""
    records = (
        {
            "input": {"messages": prompt},
            "preferred_output": [right],
            "non_preferred_output": [wrong],
        }
        for prompt, right, wrong in preferences(rows, seed)
    )
    _write_rows(path, records)


def write_rankings(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` rankings of two or three answers, one JSON object a line."""
    records = (
        {"input": {"messages": prompt}, "ranked_outputs": [[a] for a in answers]}
        for prompt, answers in rankings(rows, seed)
    )
    _write_rows(path, records)


def write_prompts(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` prompts with their right answers, one JSON object a line."""
    records = (
        {"messages": prompt, "answer": right["content"]}
        for prompt, right, _ in preferences(rows, seed)
    )
    _write_rows(path, records)


def _write_rows(path: Path, rows: Iterable[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _sum(random: Random) -> Turn:
    a, b = random.randint(0, 20), random.randint(0, 20)
    return f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}."


def _difference(random: Random) -> Turn:
    a, b = sorted((random.randint(0, 20), random.randint(0, 20)), reverse=True)
    return f"What is {a} minus {b}?", f"{a} minus {b} is {a - b}."


def _opposite(random: Random) -> Turn:
    word = random.choice(sorted(OPPOSITES))
    return f"What is the opposite of {word}?", f"The opposite of {word} is {OPPOSITES[word]}."


def _spelling(random: Random) -> Turn:
    word = random.choice(WORDS)
    return f"How do you spell {word}?", f"{word} is spelled {'-'.join(word.upper())}."


def _day(random: Random) -> Turn:
    i = random.randrange(7)
    return f"Which day comes after {DAYS[i]}?", f"After {DAYS[i]} comes {DAYS[(i + 1) % 7]}."


def _price(random: Random) -> Turn:
    item, count = random.choice(sorted(PRICES)), random.randint(1, 9)
    total = count * PRICES[item]
    return f"How much is {count} times {item}?", f"{count} times {item} costs {total} dollars."


def _fact(random: Random) -> Turn:
    question = random.choice(sorted(FACTS))
    return question, FACTS[question]


KINDS: tuple[Callable[[Random], Turn], ...] = (
    _sum,
    _difference,
    _opposite,
    _spelling,
    _day,
    _price,
    _fact,
)
