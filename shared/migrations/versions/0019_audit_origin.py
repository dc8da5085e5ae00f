"""With which credential, and from which address, each audited act was asked for."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add both; of older acts neither is known."""
    op.add_column("audit_events", sa.Column("credential_id", sa.Uuid))
    op.add_column("audit_events", sa.Column("client_address", sa.Text))
