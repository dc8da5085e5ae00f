"""Tables of distributions' settings for messaging networks, and of the accounts routed between distributions.

A setting's row has the encrypted value, and the value's last four characters, by which an operator recognizes the
value. If the setting verifies webhooks, the row also keeps the replaced value until the overlap ends.
"""

import sqlalchemy as sa

from shared.db.schema import id_column, instant, metadata, required

network_settings = sa.Table(
    "network_settings",
    metadata,
    sa.Column("distribution_id", sa.ForeignKey("distributions.id"), primary_key=True),
    sa.Column("network", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value_encrypted", sa.LargeBinary, nullable=False),
    sa.Column("last4", sa.Text, nullable=False),
    sa.Column("previous_encrypted", sa.LargeBinary),
    instant("previous_expires_at"),
    instant("changed_at", nullable=False, server_default=sa.func.now()),
    sa.CheckConstraint("(previous_encrypted IS NULL) = (previous_expires_at IS NULL)", name="previous"),
)
network_accounts = sa.Table(
    "network_accounts",
    metadata,
    id_column(),
    required("distribution_id", sa.ForeignKey("distributions.id")),
    required("network", sa.Text),
    required("account", sa.Text),
    required("target_distribution_id", sa.ForeignKey("distributions.id")),
    instant("changed_at", nullable=False, server_default=sa.func.now()),
    sa.UniqueConstraint("distribution_id", "network", "account", name="uq_network_accounts_account"),
    sa.Index("ix_network_accounts_page", "distribution_id", "network", "id"),
    sa.Index("ix_network_accounts_target", "target_distribution_id"),
)
