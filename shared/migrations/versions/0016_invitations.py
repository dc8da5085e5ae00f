"""Invitations: whom an organization has asked to join, with the hash of the token that the invited accepts with."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "invitations",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("email", sa.Text),
        sa.Column("user_id", sa.Uuid),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("invited_by", sa.Uuid),
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("last4", sa.Text, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("accepted_at", INSTANT),
        sa.Column("accepted_by", sa.Uuid),
        sa.Column("revoked_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_invitations"),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name="fk_invitations_organization_id"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_invitations_user_id"),
        sa.ForeignKeyConstraint(["invited_by"], ["users.id"], name="fk_invitations_invited_by"),
        sa.ForeignKeyConstraint(["accepted_by"], ["users.id"], name="fk_invitations_accepted_by"),
        sa.CheckConstraint("role IN ('Member', 'WorkspaceAdmin', 'WorkspaceOwner')", name="role"),
        sa.CheckConstraint("num_nonnulls(email, user_id) = 1", name="one_invitee"),
        sa.UniqueConstraint("token_hash", name="uq_invitations_token_hash"),
    )
    op.create_index("ix_invitations_organization_id_id", "invitations", ["organization_id", "id"])
