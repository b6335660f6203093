"""Errors of the predictions, in each way of fitting and testing that the tables show."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from bench.planner.points import PublishedRun
from bench.planner.steps import (
    STACKS,
    coefficients,
    constant_mfu,
    fitted,
    fitted_to_few,
    log_error,
    over_few_nodes,
    predict,
    stack_of,
    unmeasured,
    with_our_network,
)
from service.domain.performance.calibration import CONFIDENT_STEPS, StepTimeSample, calibrate
from service.domain.performance.efficiency import TrainingStack
from service.domain.performance.throughput import StepTime

FOLDS = 5
PER_COEFFICIENT = 7  # minimum number of points per fitted coefficient
CALIBRATED_ON = 2  # points of a kind to calibrate with


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Relative errors, as natural logarithms of predicted over measured."""

    logs: tuple[float, ...]

    @classmethod
    def of_ratios(cls, ratios: Sequence[float]) -> "Errors":
        """Create errors from ratios of predicted to measured."""
        return cls(logs=tuple(math.log(ratio) for ratio in ratios))

    @property
    def count(self) -> int:
        """Number of points."""
        return len(self.logs)

    @property
    def mape(self) -> float | None:
        """Mean absolute percentage error; None without points."""
        if not self.logs:
            return None
        return 100 * sum(abs(math.expm1(e)) for e in self.logs) / len(self.logs)

    def at(self, share: float) -> float | None:
        """Return the quantile ``share`` of the absolute errors, in percent; None without points."""
        if not self.logs:
            return None
        ranked = sorted(100 * abs(math.expm1(e)) for e in self.logs)
        return ranked[min(math.ceil(share * len(ranked)), len(ranked)) - 1]

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(logs=self.logs + other.logs)


NOTHING = Errors(logs=())


def of(points: Sequence[PublishedRun], seconds: Callable[[PublishedRun], float]) -> Errors:
    """Return the errors of the step times that ``seconds`` predicts."""
    return Errors(logs=tuple(log_error(p, seconds(p)) for p in points))


def by(points: Sequence[PublishedRun], stack: TrainingStack) -> Errors:
    """Return the errors of predictions with the coefficients of ``stack``."""
    return of(points, lambda point: predict(point, stack).seconds)


def split_promised(points: Sequence[PublishedRun]) -> tuple[list[PublishedRun], list[PublishedRun]]:
    """Split the points with a step time: those that the planner promises, and those it refuses."""
    timed = [p for p in points if p.seconds]
    refused = [p for p in timed if predict(p, stack_of(p)).doubt]
    return [p for p in timed if p not in refused], refused


def stored(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors with the product's coefficients, on points of known programs."""
    total = NOTHING
    for kind, stack in STACKS.items():
        total += by([p for p in points if p.stack == kind], stack)
    return total


def cross_validated(points: Sequence[PublishedRun]) -> Errors:
    """Return cross-validated errors; a fold is every fifth point."""
    return _held_out(points, lambda rows: [rows[k::FOLDS] for k in range(FOLDS)])


def without_a_size(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors of each model with coefficients fitted to the other models."""
    return _held_out(points, _by_model)


def halves(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors of each half with coefficients fitted to the other half."""
    return _held_out(points, lambda rows: [rows[::2], rows[1::2]])


def cold(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors on points of programs without fitted coefficients."""
    return _unmeasured([p for p in points if p.stack not in STACKS])


def as_if_unknown(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors on known programs with the coefficients for unknown ones.

    Points with adapters are left out, because only one program has them.
    """
    return _unmeasured([p for p in points if p.stack in STACKS and p.lora is None])


def few_nodes(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors on 2 to 16 machines, with the network factor that jobs are planned with."""
    return of(over_few_nodes(points), lambda p: predict(p, with_our_network(p)).seconds)


def few_nodes_held_out(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors of `few_nodes`, each point with a factor fitted to other GPU families."""
    total, few = NOTHING, over_few_nodes(points)
    for family in sorted({p.sku.family for p in few}):
        training = [p for p in few if p.sku.family != family]
        if not training:
            continue
        share = fitted_to_few(training)
        held_out = [p for p in few if p.sku.family == family]
        logs = (log_error(p, predict(p, with_our_network(p, share)).seconds) for p in held_out)
        total += Errors(logs=tuple(logs))
    return total


def few_nodes_as_many(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors of `few_nodes`, with the one factor fitted to hundreds of GPUs."""
    few = over_few_nodes(points)
    return of(few, lambda p: predict(p, with_our_network(p, None)).seconds)


def refused_errors(refused: Sequence[PublishedRun]) -> Errors:
    """Return the errors on refused points, if the planner promised a time."""
    return Errors(logs=tuple(math.log1p(refused_error(p)) for p in refused))


def refused_error(point: PublishedRun) -> float:
    """Return the relative error of one refused point; 0.1 is 10 % too long."""
    predicted = predict(point, stack_of(point)).seconds
    return math.expm1(log_error(point, predicted))


def _unmeasured(points: Sequence[PublishedRun]) -> Errors:
    return of(points, lambda point: predict(point, unmeasured(point)).seconds)


def after_calibration(points: Sequence[PublishedRun]) -> "Calibrated":
    """Return the errors on each point after calibration with every pair of its kind."""
    calibrated, rescaled, inside = NOTHING, NOTHING, 0
    for kind in _kinds(points):
        for pair in combinations(kind, CALIBRATED_ON):
            held_out = [p for p in kind if p not in pair]
            steps = _after(pair, held_out)
            calibrated += Errors.of_ratios([s.seconds / (p.seconds or math.nan) for p, s in steps])
            inside += sum(s.low <= (p.seconds or math.nan) <= s.high for p, s in steps)
            rescaled += _rescaled(pair, held_out)
    return Calibrated(ours=calibrated, constant=rescaled, inside=inside)


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Errors after calibration with two points: the planner's, and the constant-MFU rival's."""

    ours: Errors
    constant: Errors
    inside: int  # points within the planner's 80 % interval

    @property
    def coverage(self) -> float | None:
        """Percentage of the points within the 80 % interval; None without points."""
        return 100 * self.inside / self.ours.count if self.ours.count else None


def _after(
    calibration: Sequence[PublishedRun], held_out: Sequence[PublishedRun]
) -> list[tuple[PublishedRun, StepTime]]:
    stack = stack_of(calibration[0])
    samples = [
        StepTimeSample(
            predicted=predict(p, stack).seconds,
            measured=p.seconds or math.nan,
            steps=CONFIDENT_STEPS,
        )
        for p in calibration
    ]
    return [(p, calibrate(predict(p, stack), samples)) for p in held_out]


def _rescaled(calibration: Sequence[PublishedRun], held_out: Sequence[PublishedRun]) -> Errors:
    """Return the rival's errors after it learned its one factor from the same two points."""
    bias = sum(log_error(p, constant_mfu(p)) for p in calibration) / len(calibration)
    return of(held_out, lambda point: constant_mfu(point) * math.exp(-bias))


def _kinds(points: Sequence[PublishedRun]) -> Iterator[list[PublishedRun]]:
    kinds: dict[tuple[str, ...], list[PublishedRun]] = defaultdict(list)
    for point in points:
        kinds[point.family].append(point)
    return (kind for kind in kinds.values() if len(kind) > CALIBRATED_ON)


def _by_model(rows: Sequence[PublishedRun]) -> list[list[PublishedRun]]:
    return [[p for p in rows if p.model == model] for model in sorted({p.model for p in rows})]


def _held_out(
    points: Sequence[PublishedRun],
    folds: Callable[[Sequence[PublishedRun]], Sequence[Sequence[PublishedRun]]],
) -> Errors:
    """Return the errors of each fold with coefficients fitted to the other folds.

    Programs with too few points for a fit are left out.
    """
    total = NOTHING
    for kind in STACKS:
        rows = [p for p in points if p.stack == kind]
        if len(rows) < PER_COEFFICIENT * coefficients(kind, rows):
            continue
        for fold in folds(rows):
            total += by(fold, fitted(kind, [p for p in rows if p not in fold]))
    return total
