"""Similarity of two texts, from 0 to 1, by each metric of text_similarity.

A word is a run of letters and digits, or another sign that is no space; case is ignored.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rapidfuzz import fuzz
from rapidfuzz.distance import LCSseq

from trainer.contract.grader_spec import Metric

_LONGEST = 4  # n-grams of bleu and gleu


def similarity(metric: Metric, candidate: str, reference: str) -> float:
    """Return the metric of the model's text against the reference."""
    return _METRICS[metric](candidate, reference)


def fuzzy_match(candidate: str, reference: str) -> float:
    """Return rapidfuzz's ratio: 2 * longest common subsequence / total length, in characters."""
    return float(fuzz.ratio(candidate, reference)) / 100


def bleu(candidate: str, reference: str) -> float:
    """Return sentence BLEU-4 (Papineni et al., 2002), smoothed from bigrams on (Lin and Och, 2004).

    The geometric mean of the precisions of n-grams, times exp(1 - r / c) where the text is shorter.
    """
    candidate_words, reference_words = _words(candidate), _words(reference)
    matches, total, _ = _matches(candidate_words, reference_words, 1)
    if matches == 0:
        return 0.0
    logs = [math.log(matches / total)]
    for n in range(2, _LONGEST + 1):
        matches, total, _ = _matches(candidate_words, reference_words, n)
        logs.append(math.log((matches + 1) / (total + 1)))
    penalty = min(0.0, 1 - len(reference_words) / len(candidate_words))
    return math.exp(penalty + math.fsum(logs) / _LONGEST)


def gleu(candidate: str, reference: str) -> float:
    """Return GLEU (Wu et al., 2016): the lower of precision and recall of 1- to 4-grams."""
    candidate_words, reference_words = _words(candidate), _words(reference)
    counts = [_matches(candidate_words, reference_words, n) for n in range(1, _LONGEST + 1)]
    most = max(sum(c[1] for c in counts), sum(c[2] for c in counts), 1)
    return sum(c[0] for c in counts) / most


def rouge(candidate: str, reference: str, n: int) -> float:
    """Return ROUGE-N (Lin, 2004): F1 of the common n-grams, without stemming."""
    return _f1(*_matches(_words(candidate), _words(reference), n))


def rouge_l(candidate: str, reference: str) -> float:
    """Return ROUGE-L (Lin, 2004): F1 of the longest common subsequence of words."""
    candidate_words, reference_words = _words(candidate), _words(reference)
    return _f1(
        int(LCSseq.similarity(candidate_words, reference_words)),
        len(candidate_words),
        len(reference_words),
    )


def _f1(matches: int, candidate_total: int, reference_total: int) -> float:
    """Return 2PR / (P + R): P = matches / candidate_total, R = matches / reference_total."""
    return 2 * matches / max(candidate_total + reference_total, 1)


def _matches(candidate: Sequence[str], reference: Sequence[str], n: int) -> tuple[int, int, int]:
    """Return the number of common n-grams, with multiplicity, and of each side."""
    a, b = Counter(_grams(candidate, n)), Counter(_grams(reference, n))
    return (a & b).total(), a.total(), b.total()


def _grams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text.lower())


def _rouge(n: int) -> Callable[[str, str], float]:
    return lambda candidate, reference: rouge(candidate, reference, n)


_METRICS: dict[Metric, Callable[[str, str], float]] = {
    Metric.FUZZY_MATCH: fuzzy_match,
    Metric.BLEU: bleu,
    Metric.GLEU: gleu,
    Metric.ROUGE_1: _rouge(1),
    Metric.ROUGE_2: _rouge(2),
    Metric.ROUGE_3: _rouge(3),
    Metric.ROUGE_4: _rouge(4),
    Metric.ROUGE_5: _rouge(5),
    Metric.ROUGE_L: rouge_l,
}
