"""The settings of messaging networks by distribution, mirrored by migration 0008.

Each row is an encrypted value, with its last four characters to recognize it by. A setting that verifies webhooks
also keeps the value it replaced, until its time is over.
"""

from sqlalchemy import CheckConstraint, Column, ForeignKey, LargeBinary, Table, Text, func

from shared.schema import instant, metadata

network_settings = Table(
    "network_settings",
    metadata,
    Column("distribution_id", ForeignKey("distributions.id"), primary_key=True),
    Column("network", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value_encrypted", LargeBinary, nullable=False),
    Column("last4", Text, nullable=False),
    Column("previous_encrypted", LargeBinary),
    instant("previous_expires_at"),
    instant("changed_at", nullable=False, server_default=func.now()),
    CheckConstraint("(previous_encrypted IS NULL) = (previous_expires_at IS NULL)", name="previous"),
)
