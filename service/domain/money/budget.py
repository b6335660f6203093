"""Enforce budgets: reserve the cost of stopping before machines are requested. Pure.

The cost of stopping is known in advance: the machines save, are deleted, and the service may be
unavailable for a while. That amount is reserved for every attempt from before its first request to
Azure until its machines are seen to be gone; so for two attempts at once while one is torn down and
the next one starts. A job continues as long as spent plus reserved amounts stay within the cap.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from service.domain.humanize import format_duration
from service.domain.money.cost import CURRENCY, cents, cost_of

THRESHOLDS = (50, 75, 90)  # per cent of the cap that are announced to the user
PROJECT_BUDGET = "project's budget"  # an `exhausted_message` about one begins so
CAP_PASSED = 101  # announced as well: the allowance was not enough


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How long machines may cost money after the decision to stop them."""

    save: timedelta = timedelta(minutes=15)  # to save, upload and stop, at most
    delete: timedelta = timedelta(minutes=15)  # 99 % of deletions take less; then an alarm rings
    outage: timedelta = timedelta(minutes=30)  # of the service, which decides and deletes
    # Until the service sees that deleted machines are gone.
    detection: timedelta = timedelta(minutes=2)
    price_rise: Decimal = Decimal("0.1")  # by how much prices may rise meanwhile
    silence: timedelta = timedelta(minutes=30)  # how long nodes train on without the service

    def of_job(self, save_seconds: float | None) -> "Allowance":
        """Return the allowance of a job that needs ``save_seconds`` to save and stop.

        None: the maximum.
        """
        if save_seconds is None:
            return self
        return replace(self, save=min(self.save, timedelta(seconds=save_seconds)))

    def as_phrase(self) -> str:
        """Return what the reserve pays for, as a phrase."""
        parts = {
            "save": self.save,
            "delete them": self.delete,
            "confirm it": self.detection,
        }
        times = [
            f"{format_duration(took.total_seconds())} to {action}" for action, took in parts.items()
        ]
        away = format_duration(self.outage.total_seconds())
        return f"{', '.join(times)}, and {away} for an outage of the service"

    def stopping_cost(self, rate: Decimal) -> Decimal:
        """Return the cost of stopping machines that train, at ``rate`` dollars per hour."""
        return self._cost(rate, self.save + self.delete + self.outage + self.detection)

    def deletion_cost(self, rate: Decimal) -> Decimal:
        """Return the cost of machines that are being deleted already."""
        return self._cost(rate, self.delete + self.outage + self.detection)

    def _cost(self, rate: Decimal, time: timedelta) -> Decimal:
        return cost_of(seconds=time.total_seconds(), hourly=rate) * (1 + self.price_rise)


DEFAULT_ALLOWANCE = Allowance()


@dataclass(frozen=True, kw_only=True)
class BudgetHold:
    """An attempt whose machines are not seen to be gone."""

    hourly: Decimal  # of one machine
    machines: int  # that it has or may get
    billed: int = 0  # machines with an open row in the ledger
    known: int = 0  # machines that ever had a row
    ordered_at: datetime | None = None  # None: Azure was not asked yet
    refilled_at: datetime | None = None  # when machines were asked for in place of lost ones
    is_terminating: bool = False  # its machines are being deleted
    save_seconds: float | None = None  # planned for saving; None: all that is allowed

    @property
    def rate(self) -> Decimal:
        """Return US dollars per hour of all machines that may run."""
        return self.hourly * max(self.machines, self.billed)

    def unmetered(self, now: datetime) -> Decimal:
        """Return the possible cost of machines that were requested and not seen yet.

        The ledger bills them from when Azure accepted the request, but only once they are seen.
        """
        if self.ordered_at is None:
            return Decimal(0)
        if self.refilled_at is not None:
            missing, since = self.machines - self.billed, self.refilled_at
        else:
            missing, since = self.machines - self.known, self.ordered_at
        seconds = max((now - since).total_seconds(), 0)
        return cost_of(seconds=seconds, hourly=self.hourly, nodes=max(missing, 0))

    def reserve(self, allowance: Allowance) -> Decimal:
        """Return the amount reserved for stopping the machines."""
        own = allowance.of_job(self.save_seconds)
        return own.deletion_cost(self.rate) if self.is_terminating else own.stopping_cost(self.rate)


@dataclass(frozen=True, kw_only=True)
class BudgetStanding:
    """Spent and reserved amounts against a cap: a job's own, or its project's."""

    cap: Decimal
    metered: Decimal  # by the ledgers: machines and storage
    unmetered: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    rate: Decimal = Decimal(0)  # US dollars per hour of all that may run
    whose: str = "budget"  # "budget" or "project's budget", for sentences

    @property
    def spent(self) -> Decimal:
        """Return the most that the bill can be so far."""
        return self.metered + self.unmetered

    @property
    def remaining(self) -> Decimal:
        """Return what is neither spent nor reserved; negative: the machines must stop."""
        return self.cap - self.spent - self.reserved

    @property
    def is_exhausted(self) -> bool:
        """Return whether nothing is left for training."""
        return self.remaining <= 0

    @property
    def percent(self) -> int:
        """Return the spent share of the cap in per cent."""
        return int(100 * self.spent / self.cap)


def budget_standing(
    cap: Decimal,
    metered: Decimal,
    holds: Iterable[BudgetHold],
    now: datetime,
    allowance: Allowance,
    whose: str = "budget",
) -> BudgetStanding:
    """Sum up the attempts against the cap."""
    holds = tuple(holds)
    return BudgetStanding(
        cap=cap,
        metered=metered,
        unmetered=sum((h.unmetered(now) for h in holds), Decimal(0)),
        reserved=sum((h.reserve(allowance) for h in holds), Decimal(0)),
        rate=sum((h.rate for h in holds), Decimal(0)),
        whose=whose,
    )


def required_to_start(rate: Decimal, allowance: Allowance, until_first_step: timedelta) -> Decimal:
    """Return the amount that must be left before machines at this rate are requested.

    They cost money while they boot; with less they would be stopped before the first step.
    """
    boot = cost_of(seconds=until_first_step.total_seconds(), hourly=rate)
    return allowance.stopping_cost(rate) + boot


def reached_threshold(standing: BudgetStanding, announced: int) -> int:
    """Return the highest threshold reached and not yet announced; 0 for none."""
    if standing.metered > standing.cap:  # metered only: unmetered cost may turn out to be zero
        return CAP_PASSED if announced < CAP_PASSED else 0
    reached = [t for t in THRESHOLDS if announced < t <= standing.percent]
    return max(reached, default=0)


def allowed_silence(standing: BudgetStanding, allowance: Allowance) -> timedelta:
    """Return how long a node may train without the service; shorter near the cap."""
    if standing.rate <= 0:
        return allowance.silence
    spare = timedelta(hours=float(standing.remaining / standing.rate))
    return max(min(allowance.silence, allowance.outage + spare), timedelta(0))


def exhausted_message(standing: BudgetStanding, job_id: str, short_of: Decimal = Decimal(0)) -> str:
    """Return that the budget is exhausted, and what the user can do.

    ``short_of``: the amount that a start would need.
    """
    used = f"{cents(standing.spent)} of {cents(standing.cap)} {CURRENCY} are spent"
    if short_of:
        detail = (
            f"{used}, and {cents(short_of)} must be left to start machines, save and delete them"
        )
    else:
        reserve = f"{cents(standing.reserved)} are reserved to save and to delete the machines"
        detail = f"{used}, and {reserve}"
    remedy = f"raise it with `rekindle set {job_id} --budget AMOUNT`"
    if standing.whose != "budget":
        remedy = "ask an operator to raise it"
    return f"{standing.whose} exhausted: {detail}; {remedy}"


def without_remedy(exhausted: str) -> str:
    """Return an `exhausted_message` without what the user can do, for a job that is over."""
    return exhausted.partition("; ")[0]


def threshold_message(standing: BudgetStanding, reached: int) -> str:
    """Return the announcement of a threshold."""
    used = f"{cents(standing.spent)} of {cents(standing.cap)} {CURRENCY}"
    if reached == CAP_PASSED:
        return (
            f"The {standing.whose} is exceeded: {used} are spent, as an outage of the service or a "
            "deletion by Azure took longer than the reserve covers. Check that the job's machines "
            "are gone."
        )
    return f"{reached} % of the {standing.whose} are spent: {used}"
