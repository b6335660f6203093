"""What replicas share of the cloud: the last listing, tokens for requests, circuits, alarms."""

from sqlalchemy import Column, Float, Integer, PrimaryKeyConstraint, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from service.db.schema.columns import Moment, metadata

cloud_listings = Table(
    "cloud_listings",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("due_at", Moment, nullable=False),  # whoever comes then lists, and nobody else
    Column("listed_at", Moment),  # when it was begun
    Column("sets", JSONB, nullable=False, server_default="{}"),  # name -> [phase, capacity]
)

cloud_tokens = Table(
    "cloud_tokens",
    metadata,
    Column("region", Text, nullable=False),
    Column("kind", Text, nullable=False),  # of request, see domain/rate_limit.py
    Column(
        "tokens", Float, nullable=False
    ),  # there were so many; less than 0: taken in advance ...
    Column("at", Moment, nullable=False),  # ... at this time
    PrimaryKeyConstraint("region", "kind"),
)

cloud_circuits = Table(
    "cloud_circuits",
    metadata,
    Column("region", Text, primary_key=True),
    Column("failures", Integer, nullable=False, server_default="0"),  # in a row
    Column("shut_until", Moment),  # nobody asks there before; null: all is well
)

alarms = Table(
    "alarms",
    metadata,
    Column("kind", Text, nullable=False),  # the log event that tells of it
    Column("name", Text, nullable=False),  # what should not be there
    Column("since", Moment, nullable=False),  # a sweep first saw it
    Column("told_at", Moment),  # when the last alarm was raised
    PrimaryKeyConstraint("kind", "name"),
)
