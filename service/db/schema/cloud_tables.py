"""Tables that replicas share about the cloud: listing, tokens, circuit breakers, alarms."""

from sqlalchemy import Column, Float, Integer, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from service.db.schema.columns import Moment, metadata

cloud_listings = Table(
    "cloud_listings",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("due_at", Moment, nullable=False),  # when the next replica may list
    Column("listed_at", Moment),  # when the listing began
    Column("sets", JSONB, nullable=False, server_default="{}"),  # name -> [phase, capacity]
)

cloud_tokens = Table(
    "cloud_tokens",
    metadata,
    Column("region", Text, nullable=False),
    Column("kind", Text, nullable=False),  # of request, see domain/cloud/rate_limit.py
    Column("tokens", Float, nullable=False),  # balance; negative: taken in advance ...
    Column("at", Moment, nullable=False),  # ... at this time
    PrimaryKeyConstraint("region", "kind"),
)

cloud_circuits = Table(
    "cloud_circuits",
    metadata,
    Column("region", Text, primary_key=True),
    Column("failures", Integer, nullable=False, server_default="0"),  # in a row
    Column("shut_until", Moment),  # no calls before; null: closed
)

alarms = Table(
    "alarms",
    metadata,
    Column("kind", Text, nullable=False),  # the log event of the alarm
    Column("name", Text, nullable=False),  # resource that should not exist
    Column("since", Moment, nullable=False),  # when a sweep first saw it
    Column("told_at", Moment),  # when the last alarm was raised
    PrimaryKeyConstraint("kind", "name"),
)
