"""Token buckets for calls to Azure, shared by all replicas."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.domain.cloud.rate_limit import FAR, TokenBucket

# Replicas' clocks differ: a bucket's time never runs backwards, unless it is far ahead.
_TAKE = text("""
with given as (
  select * from unnest(
    cast(:regions as text[]), cast(:kinds as text[]), cast(:counts as int[]),
    cast(:sizes as float8[]), cast(:rates as float8[])
  ) as g (region, kind, count, size, per_second)
)
insert into cloud_tokens as t (region, kind, tokens, at)
select region, kind, size - count, :now from given order by region, kind
on conflict (region, kind) do update set (tokens, at) = (
  select
    case when t.at > :far then t.tokens else least(
      t.tokens + g.per_second * greatest(extract(epoch from :now - t.at), 0), g.size
    ) end - g.count,
    case when t.at > :far then cast(:now as timestamptz) else greatest(t.at, :now) end
  from given g where g.region = t.region and g.kind = t.kind
)
returning t.region, t.kind, t.tokens
""")


@dataclass(frozen=True, kw_only=True)
class TokenRequest:
    """``count`` tokens of each of these buckets of a region; negative: given back.

    With a count of 0 and a smaller size, the buckets are lowered to that size.
    """

    region: str
    buckets: Mapping[str, TokenBucket]  # by kind
    count: int = 1


async def take(
    conn: AsyncConnection, requests: Sequence[TokenRequest], now: datetime
) -> list[timedelta]:
    """Take tokens for each request, in advance where there are none; return how long each waits.

    One statement. Zero: there were tokens.
    """
    buckets = {
        (request.region, kind): b for request in requests for kind, b in request.buckets.items()
    }
    counts = Counter[tuple[str, str]]()
    for request in requests:
        counts.update(
            dict.fromkeys(((request.region, kind) for kind in request.buckets), request.count)
        )
    parameters = {
        "regions": [region for region, _ in buckets],
        "kinds": [kind for _, kind in buckets],
        "counts": [counts[key] for key in buckets],
        "sizes": [bucket.size for bucket in buckets.values()],
        "rates": [bucket.per_second for bucket in buckets.values()],
    }
    rows = await conn.execute(_TAKE, parameters | {"now": now, "far": now + FAR}) if buckets else ()
    tokens = {(r.region, r.kind): float(r.tokens) + counts[r.region, r.kind] for r in rows}
    waits = []
    for request in requests:
        for kind in request.buckets:
            tokens[request.region, kind] -= request.count
        bucket_waits = (b.wait(tokens[request.region, kind]) for kind, b in request.buckets.items())
        waits.append(max(bucket_waits, default=timedelta(0)))
    return waits
