"""Token buckets for calls to Azure, shared by all replicas."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.cloud_tables import cloud_tokens
from service.domain.cloud.rate_limit import FAR, TokenBucket

# Replicas' clocks differ: a bucket's time never runs backwards, unless it is far ahead.
_TAKE = text("""
with given as (
  select * from unnest(
    cast(:regions as text[]), cast(:kinds as text[]), cast(:counts as int[]),
    cast(:sizes as float8[]), cast(:rates as float8[])
  ) as g (region, kind, count, size, per_second)
), refilled as (
  select t.region, t.kind, g.count,
    case when t.at > :far then t.tokens else least(
      t.tokens + g.per_second * greatest(extract(epoch from :now - t.at), 0), g.size
    ) end as tokens,
    case when t.at > :far then cast(:now as timestamptz) else greatest(t.at, :now) end as at
  from cloud_tokens t join given g on t.region = g.region and t.kind = g.kind
  order by t.region, t.kind for update of t
)
update cloud_tokens t set tokens = r.tokens - r.count, at = r.at
from refilled r where t.region = r.region and t.kind = r.kind
returning t.region, t.kind, t.tokens
""")
_CORRECT = text("""
update cloud_tokens t set tokens = :remaining, at = greatest(t.at, :now)
where t.region = :region and t.kind = :kind and :remaining < least(
  t.tokens + :per_second * greatest(extract(epoch from :now - t.at), 0), :size
)
""")
Key = tuple[str, str]  # region and kind of a bucket


@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """One token of each of these buckets of a region."""

    region: str
    buckets: Mapping[str, TokenBucket]  # by kind


async def take(
    conn: AsyncConnection, requests: Sequence[TokenRequest], now: datetime
) -> list[timedelta]:
    """Take tokens for each request, in advance where there are none; return how long each waits.

    One statement, and one more when a bucket is used for the first time. Zero: there were tokens.
    """
    counts = Counter((one.region, kind) for one in requests for kind in one.buckets)
    if not counts:
        return [timedelta(0)] * len(requests)
    balances = await _balances(conn, requests, counts, now)
    waits = []
    for one in requests:
        wait = timedelta(0)
        for kind, bucket in one.buckets.items():
            key = (one.region, kind)
            counts[key] -= 1  # requests that are served after this one
            wait = max(wait, bucket.wait(balances[key] + counts[key]))
        waits.append(wait)
    return waits


async def correct(
    conn: AsyncConnection,
    region: str,
    kind: str,
    bucket: TokenBucket,
    remaining: int,
    now: datetime,
) -> None:
    """Lower the bucket to the ``remaining`` tokens that Azure's response reports."""
    facts = {"region": region, "kind": kind, "remaining": float(remaining), "now": now}
    facts |= {"size": bucket.size, "per_second": bucket.per_second}
    await conn.execute(_CORRECT, facts)


async def _balances(
    conn: AsyncConnection,
    requests: Sequence[TokenRequest],
    counts: Mapping[Key, int],
    now: datetime,
) -> dict[Key, float]:
    """Take ``counts`` tokens from each bucket; return the balances, negative if in debt."""
    buckets = {(one.region, kind): b for one in requests for kind, b in one.buckets.items()}
    found: dict[Key, float] = {}
    while missing := sorted(counts.keys() - found.keys()):
        given = {
            "regions": [region for region, _ in missing],
            "kinds": [kind for _, kind in missing],
            "counts": [counts[key] for key in missing],
            "sizes": [buckets[key].size for key in missing],
            "rates": [buckets[key].per_second for key in missing],
        }
        rows = await conn.execute(_TAKE, given | {"now": now, "far": now + FAR})
        found |= {(row.region, row.kind): float(row.tokens) for row in rows}
        new = [
            {"region": region, "kind": kind, "tokens": buckets[region, kind].size, "at": now}
            for region, kind in missing
            if (region, kind) not in found
        ]
        if new:
            await conn.execute(upsert(cloud_tokens).values(new).on_conflict_do_nothing())
    return found
