"""Signed messages to other services until they have arrived, and the endpoints that distributions name for them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NOW = sa.text("now()")
_ZERO = sa.text("0")
_INSTANT = sa.DateTime(timezone=True)
_OPEN = sa.text("state IN ('Waiting', 'Sending')")
# A queue's indexes fill with rows that are no longer due; vacuum after one row in a hundred, not in five.
_EAGER_VACUUM = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.05"


def upgrade() -> None:
    """Create the tables."""
    _create_deliveries()
    _create_notifications()


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("destination_id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'Waiting'")),
        sa.Column("address_encrypted", sa.LargeBinary),
        sa.Column("content_type", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary),
        sa.Column("in_flight_limit", sa.SmallInteger, nullable=False),
        sa.Column("attempt_limit", sa.SmallInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("claims", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("lapses", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("due_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.Column("last_status", sa.Integer),
        sa.Column("last_code", sa.Text),
        sa.Column("last_attempt_at", _INSTANT),
        sa.Column("ended_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("state IN ('Waiting', 'Sending', 'Delivered', 'Dead')", name="state"),
        sa.CheckConstraint("(state IN ('Delivered', 'Dead')) = (ended_at IS NOT NULL)", name="ended"),
        sa.CheckConstraint("(state = 'Delivered') = (body IS NULL)", name="body"),
        sa.CheckConstraint("in_flight_limit BETWEEN 1 AND 16", name="in_flight_limit"),
        sa.CheckConstraint("attempt_limit BETWEEN 1 AND 10", name="attempt_limit"),
    )
    op.create_index("ix_deliveries_destination_id_id", "deliveries", ["destination_id", "id"])
    op.create_index("ix_deliveries_open", "deliveries", ["destination_id", "due_at"], postgresql_where=_OPEN)
    op.create_index("ix_deliveries_due", "deliveries", ["due_at"], postgresql_where=_OPEN)
    for name, column, state in (
        ("ix_deliveries_sending", "destination_id", "Sending"),
        ("ix_deliveries_delivered", "ended_at", "Delivered"),
        ("ix_deliveries_dead", "ended_at", "Dead"),
    ):
        op.create_index(name, "deliveries", [column], postgresql_where=sa.text(f"state = '{state}'"))
    op.execute(f"ALTER TABLE deliveries SET ({_EAGER_VACUUM})")


def _create_notifications() -> None:
    op.create_table(
        "notification_endpoints",
        sa.Column("distribution_id", sa.Uuid, sa.ForeignKey("distributions.id"), primary_key=True),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("url_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("disabled_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
    )
    op.create_table(
        "expiring_media",
        sa.Column("file_id", sa.Uuid, primary_key=True),
        sa.Column("distribution_id", sa.Uuid, nullable=False),
        sa.Column("details", sa.dialects.postgresql.JSONB, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
    )
    op.create_index("ix_expiring_media_expires_at", "expiring_media", ["expires_at"])
