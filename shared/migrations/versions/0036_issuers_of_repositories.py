"""The issuer of the first token that a deployment's repository was accepted with."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    """Add the column; it is set by the next token of a repository that was accepted before."""
    op.add_column("deployment_repositories", sa.Column("issuer", sa.Text))
