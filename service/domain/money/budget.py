"""How a budget holds: what is put aside before machines are asked for, and when they must go.

What stopping costs is known before it is needed: the machines save, which takes as long as the job
needs for it, are deleted, and the service may be away for a while. That much is reserved for every
attempt from before its first request to Azure until its machines are seen to be gone, so for two at
once while one is torn down and the next one starts. A job goes on for as long as what is spent and
what is reserved stay within the cap. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from service.domain.humanize import duration
from service.domain.money.cost import CURRENCY, cents

THRESHOLDS = (50, 75, 90)  # per cent of the cap: whoever pays is told
OF_PROJECT = "project's budget"  # a sentence of `why_exhausted` about one begins so
PASSED = 101  # told as well: the allowance was not enough
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How long machines may cost money after it was decided that they go."""

    save: timedelta = timedelta(minutes=15)  # to save, upload and stop, at most
    delete: timedelta = timedelta(minutes=15)  # 99 % of deletions take less; then an alarm rings
    outage: timedelta = timedelta(minutes=30)  # of the service, which decides and deletes
    look: timedelta = timedelta(minutes=2)  # between two looks, and until what is gone is seen so
    dearer: Decimal = Decimal("0.1")  # by how much prices may rise meanwhile
    unheard: timedelta = timedelta(minutes=30)  # how long nodes train on without the service

    def of_job(self, save_seconds: float | None) -> "Allowance":
        """Return the same for a job that needs ``save_seconds`` to save and stop, as planned.

        None: all that is allowed.
        """
        if save_seconds is None:
            return self
        return replace(self, save=min(self.save, timedelta(seconds=save_seconds)))

    def in_words(self) -> str:
        """Say what the machines are paid for after the decision that they go."""
        parts = {
            "save": self.save,
            "delete them": self.delete,
            "look whether they are gone": self.look,
        }
        times = [f"{duration(took.total_seconds())} to {what}" for what, took in parts.items()]
        away = duration(self.outage.total_seconds())
        return f"{', '.join(times)}, and {away} in which the service may be away"

    def stopping(self, rate: Decimal) -> Decimal:
        """What machines at so many dollars an hour cost from training to being gone."""
        return self._of(rate, self.save + self.delete + self.outage + self.look)

    def leaving(self, rate: Decimal) -> Decimal:
        """The same for machines that are being deleted already."""
        return self._of(rate, self.delete + self.outage + self.look)

    def _of(self, rate: Decimal, time: timedelta) -> Decimal:
        return amount(rate, time) * (1 + self.dearer)


USUAL = Allowance()


@dataclass(frozen=True, kw_only=True)
class Hold:
    """An attempt that is not seen to be gone."""

    hourly: Decimal  # of one machine
    machines: int  # that it has or may get
    billed: int = 0  # machines with an open row in the ledger
    known: int = 0  # machines that ever had a row
    ordered_at: datetime | None = None  # None: Azure was not asked yet
    refilled_at: datetime | None = None  # when machines were asked for in place of lost ones
    leaving: bool = False  # its machines are being deleted
    save_seconds: float | None = None  # planned for saving; None: all that is allowed

    @property
    def rate(self) -> Decimal:
        """US dollars per hour of all that may run."""
        return self.hourly * max(self.machines, self.billed)

    def unmetered(self, now: datetime) -> Decimal:
        """What machines may have cost that were ordered and not seen yet.

        The ledger bills them from when Azure took the order, but only once they are seen.
        """
        if self.ordered_at is None:
            return Decimal(0)
        if self.refilled_at is not None:
            missing, since = self.machines - self.billed, self.refilled_at
        else:
            missing, since = self.machines - self.known, self.ordered_at
        return amount(self.hourly * max(missing, 0), max(now - since, timedelta(0)))

    def reserve(self, allowance: Allowance) -> Decimal:
        """What is put aside for the end of it."""
        own = allowance.of_job(self.save_seconds)
        return own.leaving(self.rate) if self.leaving else own.stopping(self.rate)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a cap covers at this moment: a job's own, or its project's."""

    cap: Decimal
    metered: Decimal  # by the ledgers: machines and storage
    unmetered: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    rate: Decimal = Decimal(0)  # US dollars per hour of all that may run
    whose: str = "budget"  # "budget" or "project's budget", for sentences

    @property
    def spent(self) -> Decimal:
        """The most that the bill can be so far."""
        return self.metered + self.unmetered

    @property
    def left(self) -> Decimal:
        """What is neither spent nor put aside; below zero the machines must go."""
        return self.cap - self.spent - self.reserved

    @property
    def is_exhausted(self) -> bool:
        """True when not a minute more can be paid for."""
        return self.left <= 0

    @property
    def percent(self) -> int:
        """Of the cap, spent."""
        return int(100 * self.spent / self.cap)


def standing(
    cap: Decimal,
    metered: Decimal,
    holds: Iterable[Hold],
    now: datetime,
    allowance: Allowance,
    whose: str = "budget",
) -> Standing:
    """Everything that is known of the attempts, added up."""
    holds = tuple(holds)
    return Standing(
        cap=cap,
        metered=metered,
        unmetered=sum((h.unmetered(now) for h in holds), Decimal(0)),
        reserved=sum((h.reserve(allowance) for h in holds), Decimal(0)),
        rate=sum((h.rate for h in holds), Decimal(0)),
        whose=whose,
    )


def amount(rate: Decimal, time: timedelta) -> Decimal:
    """What ``time`` costs at so many dollars per hour."""
    return rate * Decimal(time / timedelta(seconds=1)) / _SECONDS_PER_HOUR


def needed(rate: Decimal, allowance: Allowance, until_first_step: timedelta) -> Decimal:
    """What must be left for machines at this rate to be worth asking for.

    They are paid for while they boot, and would be stopped before the first step with less.
    """
    return allowance.stopping(rate) + amount(rate, until_first_step)


def threshold(standing: Standing, told: int) -> int:
    """The highest one that is reached and was not told yet; 0 for none."""
    if standing.metered > standing.cap:  # seen: what nobody can see may be nothing
        return PASSED if told < PASSED else 0
    reached = [t for t in THRESHOLDS if told < t <= standing.percent]
    return max(reached, default=0)


def nodes_may_go_on(standing: Standing, allowance: Allowance) -> timedelta:
    """Return how long a node may train without hearing from the service: less near the cap."""
    if standing.rate <= 0:
        return allowance.unheard
    spare = timedelta(hours=float(standing.left / standing.rate))
    return max(min(allowance.unheard, allowance.outage + spare), timedelta(0))


def why_exhausted(standing: Standing, job_id: str, short_of: Decimal = Decimal(0)) -> str:
    """One sentence for the user, with what to do; ``short_of``: what a start would need."""
    used = f"{cents(standing.spent)} of {cents(standing.cap)} {CURRENCY} are spent"
    if short_of:
        rest = f"{used}, and {cents(short_of)} must be left to start machines, save and delete them"
    else:
        kept = f"{cents(standing.reserved)} are reserved to save and to delete the machines"
        rest = f"{used}, and {kept}"
    remedy = f"raise it with `rekindle set {job_id} --budget AMOUNT`"
    if standing.whose != "budget":
        remedy = "whoever runs the service can raise it"
    return f"{standing.whose} used up: {rest}; {remedy}"


def why_told(standing: Standing, reached: int) -> str:
    """One sentence about a threshold."""
    used = f"{cents(standing.spent)} of {cents(standing.cap)} {CURRENCY}"
    if reached == PASSED:
        return (
            f"The {standing.whose} is passed: {used} are spent. Something outlasted what was put "
            "aside: an outage of the service, or machines that Azure did not delete."
        )
    return f"{reached} % of the {standing.whose} are spent: {used}"
