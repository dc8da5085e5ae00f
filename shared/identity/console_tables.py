"""The tables of console sessions and of the sign-in links that start them; migration 0044 creates them."""

import sqlalchemy as sa

from shared.db.schema import created_at, id_column, instant, metadata, required

console_links = sa.Table(
    "console_links",
    metadata,
    id_column(),
    required("user_id", sa.ForeignKey("users.id")),
    required("token_hash", sa.LargeBinary),
    instant("expires_at", nullable=False, index=True),
    instant("used_at"),
    created_at(),
    sa.UniqueConstraint("token_hash"),
)

console_sessions = sa.Table(
    "console_sessions",
    metadata,
    id_column(),
    required("user_id", sa.ForeignKey("users.id"), index=True),
    # The organization in which the session acts. If it is null, the session acts where the user's unbound keys act.
    sa.Column("organization_id", sa.ForeignKey("organizations.id")),
    required("hash", sa.LargeBinary),
    instant("stepped_up_at", nullable=False, server_default=sa.func.now()),
    instant("last_used_at", nullable=False, server_default=sa.func.now()),
    instant("expires_at", nullable=False, index=True),
    instant("revoked_at"),
    created_at(),
    sa.UniqueConstraint("hash"),
)
