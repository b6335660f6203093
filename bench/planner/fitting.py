"""Robust least squares for a few positive coefficients (Levenberg-Marquardt).

It fits logarithms of a dozen coefficients, so it needs no numerical library.
"""

import math
from collections.abc import Callable, Mapping, Sequence

Coefficients = Mapping[str, float]
Residuals = Callable[[Coefficients], Sequence[float]]  # logarithms of predicted over measured

_ROUNDS = 60
_STEP = 1e-4  # step in a coefficient's logarithm, for numerical derivatives
_SOFT = 0.05  # pseudo-Huber: larger errors count linearly, for outliers
_TIE = 1e-3  # ridge towards the start, for coefficients without data


def fit(start: Coefficients, residuals: Residuals) -> dict[str, float]:
    """Return the coefficients with the least robust error, starting from ``start``."""
    best, damping = dict(start), 1e-2
    errors = residuals(best)
    cost = _cost(errors, best, start)
    for _ in range(_ROUNDS):
        slopes = [_slope(best, name, errors, residuals) for name in best]
        away = [math.log(best[name] / start[name]) for name in best]
        move = _move(slopes, errors, away, damping)
        candidate = {
            n: c * math.exp(_bounded(m)) for (n, c), m in zip(best.items(), move, strict=True)
        }
        candidate_errors = residuals(candidate)
        candidate_cost = _cost(candidate_errors, candidate, start)
        gained = cost - candidate_cost
        if gained > 0:
            best, errors, cost, damping = candidate, candidate_errors, candidate_cost, damping / 4
        else:
            damping *= 8
        if 0 < gained < 1e-6 * cost or damping > 1e6:
            break
    return best


def _bounded(move: float) -> float:
    return max(-1.0, min(1.0, move))


def _cost(errors: Sequence[float], now: Coefficients, start: Coefficients) -> float:
    ties = sum(math.log(now[n] / start[n]) ** 2 for n in start)
    return sum(_SOFT**2 * 2 * (math.hypot(1, e / _SOFT) - 1) for e in errors) + _TIE * ties


def _slope(
    at: Coefficients, name: str, errors: Sequence[float], residuals: Residuals
) -> Sequence[float]:
    shifted = residuals({**at, name: at[name] * math.exp(_STEP)})
    return [(n - f) / _STEP for n, f in zip(shifted, errors, strict=True)]


def _move(
    slopes: Sequence[Sequence[float]],
    errors: Sequence[float],
    away: Sequence[float],
    damping: float,
) -> list[float]:
    """Solve the damped normal equations, with each residual weighted by its robust weight."""
    weights = [1 / math.hypot(1, e / _SOFT) for e in errors]
    size = range(len(slopes))
    matrix = [
        [
            sum(w * a * b for w, a, b in zip(weights, slopes[i], slopes[j], strict=True))
            for j in size
        ]
        for i in size
    ]
    vector = [
        -sum(w * a * e for w, a, e in zip(weights, slopes[i], errors, strict=True)) - _TIE * away[i]
        for i in size
    ]
    for i in size:
        matrix[i][i] += _TIE + damping * (matrix[i][i] + 1e-9)
    return _solve(matrix, vector)


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Solve a small linear system by Gaussian elimination with pivoting."""
    rows = [[*line, value] for line, value in zip(matrix, vector, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for below in rows[i + 1 :]:
            share = below[i] / rows[i][i]
            for j in range(i, size + 1):
                below[j] -= share * rows[i][j]
    answer = [0.0] * size
    for i in reversed(range(size)):
        substituted = sum(rows[i][j] * answer[j] for j in range(i + 1, size))
        answer[i] = (rows[i][size] - substituted) / rows[i][i]
    return answer
