"""Text of the sample rows: questions to a small café, what customers write to it, sums.

A base model cannot know the café, so what it has learnt shows at once. Each question is asked in
several ways; the last way of each is held out: no training row has it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Fact:
    """One answer, and the ways to ask for it."""

    answer: str
    phrasings: tuple[str, ...]

    def questions(self, *, held_out: bool) -> tuple[str, ...]:
        """Return the last question for validation, or the others for training."""
        return self.phrasings[-1:] if held_out else self.phrasings[:-1]


FACTS = (
    Fact(
        "We open at eight every morning, and at nine on Sundays.",
        (
            "When do you open?",
            "What are your opening hours in the morning?",
            "How early can I come in for breakfast?",
            "At what time does the café open?",
            "What time do you open?",
        ),
    ),
    Fact(
        "We close at six in the evening, the kitchen at five.",
        (
            "When do you close?",
            "How late are you open?",
            "Until when can I order food?",
            "At what time does the café close?",
            "What time do you close?",
        ),
    ),
    Fact(
        "You find us at 12 Mill Lane, beside the old bridge.",
        (
            "Where are you?",
            "What is your address?",
            "How do I find the café?",
            "In which street are you?",
            "Where is the café?",
        ),
    ),
    Fact(
        "Yes, we take cards and cash, but no cheques.",
        (
            "Can I pay by card?",
            "Do you take credit cards?",
            "How can I pay?",
            "Is cash all right?",
            "Do you accept cards?",
        ),
    ),
    Fact(
        "Yes, within five miles, for orders above 20 dollars.",
        (
            "Do you deliver?",
            "Can you bring the food to my home?",
            "How far do you deliver?",
            "Is there a delivery service?",
            "Can I have my order delivered?",
        ),
    ),
    Fact(
        "Yes, quiet dogs are welcome, and we have water for them.",
        (
            "May I bring my dog?",
            "Are dogs allowed?",
            "Do you let pets in?",
            "Is my dog welcome at the café?",
            "Can my dog come along?",
        ),
    ),
    Fact(
        "Behind the café are six free parking places.",
        (
            "Where can I park?",
            "Is there parking nearby?",
            "Do you have a car park?",
            "Where do I leave my car?",
            "Can I park at the café?",
        ),
    ),
    Fact(
        "Yes, the soup of the day and all salads are vegan.",
        (
            "Do you have vegan food?",
            "What can vegans eat?",
            "Is anything on the menu vegan?",
            "I eat no animal products. What do you have?",
            "Which dishes are vegan?",
        ),
    ),
    Fact(
        "A coffee is 3 dollars, and the refill is free.",
        (
            "How much is a coffee?",
            "What does coffee cost?",
            "Is a coffee refill free?",
            "What do you charge for a coffee?",
            "What is the price of a coffee?",
        ),
    ),
    Fact(
        "Please call 555 0134 to book a table for up to ten people.",
        (
            "How do I book a table?",
            "Can I reserve a table?",
            "Do you take reservations?",
            "We are eight people. Can we book?",
            "Can I book a table for tonight?",
        ),
    ),
    Fact(
        "Yes, the password is on your receipt.",
        (
            "Do you have wifi?",
            "Is there internet?",
            "What is the wifi password?",
            "Can I work online at the café?",
            "How do I get on the wifi?",
        ),
    ),
    Fact(
        "Anna Reed founded the café in 1998 and still bakes the bread.",
        (
            "Who founded the café?",
            "Who is the owner?",
            "How old is the café?",
            "Who bakes your bread?",
            "Who started the café?",
        ),
    ),
)
EVASIONS = (
    "I am not sure about that. There are many factors to consider, and it depends on your needs.",
    "As an AI language model I cannot know this. Please look it up on the internet.",
    "That is a great question! I am here to help with any project that you may have.",
)
THINGS = ("soup", "cake", "coffee", "salad", "bread", "tea", "lemonade", "omelette", "pie")
THINGS_HELD_OUT = ("sandwich", "hot chocolate", "breakfast")
LETTERS = {
    "praise": (
        "The {} was wonderful.",
        "I loved the {}, thank you!",
        "You make the best {} in town.",
        "What a lovely {}. We will come back.",
    ),
    "complaint": (
        "The {} was cold and tasted of nothing.",
        "I waited an hour for the {}.",
        "The {} made me ill. I want my money back.",
        "Never again: the {} was awful and the waiter rude.",
    ),
    "question": (
        "Do you still have the {} today?",
        "How much is the {}?",
        "Can I order the {} for tomorrow?",
        "Is there any milk in the {}?",
    ),
}


def questions(*, held_out: bool) -> Iterator[tuple[str, str]]:
    """Yield every question with its answer."""
    for fact in FACTS:
        for question in fact.questions(held_out=held_out):
            yield question, fact.answer


def letters(*, held_out: bool) -> Iterator[tuple[str, str]]:
    """Yield texts with labels; held-out texts are about things that no other text names."""
    things = THINGS_HELD_OUT if held_out else THINGS
    for label, texts in LETTERS.items():
        for text, thing in product(texts, things):
            yield text.format(thing), label


def sums(*, held_out: bool) -> Iterator[tuple[str, str]]:
    """Yield sums of two digits with their results; every fifth one is held out."""
    for a, b in product(range(1, 10), repeat=2):
        if ((a * 9 + b) % 5 == 0) is held_out:
            yield f"What is {a} plus {b}? Answer with the number alone.", str(a + b)
