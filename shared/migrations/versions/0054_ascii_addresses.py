"""One user an address, in which the case of letters of ASCII alone does not count."""

from alembic import op

revision = "0054"
down_revision = "0053"


def upgrade() -> None:
    """Make the index anew: what was told apart before still is."""
    op.execute('CREATE UNIQUE INDEX uq_users_address ON users (lower(email COLLATE "C"))')
    op.drop_index("uq_users_email", "users")
    op.execute("ALTER INDEX uq_users_address RENAME TO uq_users_email")
