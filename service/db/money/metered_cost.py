"""Compose the SQL that turns rows of the ledgers into hours and US dollars.

`service/domain/money/cost.py` and `storage_cost.py` are the same in Python.
"""

from service.domain.money.storage_cost import GIB_HOURS

NOW = "cast(:now as timestamptz)"


def metered_hours(*, since: str = "", until: str = NOW) -> str:
    """Return the hours of a row between two moments; an open row lasts until ``until``.

    ``since``, ``until``: expressions, or several with commas between them; "": from its start.
    """
    start = f"greatest(started_at, {since})" if since else "started_at"
    return f"greatest(extract(epoch from least(ended_at, {until}) - {start}), 0) / 3600"


def machine_cost(price: str = "hourly", *, since: str = "", until: str = NOW) -> str:
    """Return the cost of rows of `ledger`; ``price``: the column with dollars per hour."""
    return f"sum({price} * {metered_hours(since=since, until=until)})"


def storage_cost(*, since: str = "", until: str = NOW) -> str:
    """Return the cost of rows of `storage_ledger`."""
    return f"sum(size * month * {metered_hours(since=since, until=until)}) / {GIB_HOURS}.0"


def total_cost(condition: str, *, machines: str = "", since: str = "") -> str:
    """Return the cost of machines, storage and tier moves of the jobs that ``condition`` selects.

    ``machines``: a narrower condition for rows of `ledger`; ``since``: costs from then on only.
    """
    stored_since = f" and (ended_at is null or ended_at > {since})" if since else ""
    moved_since = f" and asked_at >= {since}" if since else ""
    terms = (
        f"{machine_cost(since=since)} from ledger where {machines or condition}",
        f"{storage_cost(since=since)} from storage_ledger where {condition}{stored_since}",
        f"sum(charge) from tier_moves where {condition}{moved_since}",
    )
    return " + ".join(f"coalesce((select {term}), 0)" for term in terms)
