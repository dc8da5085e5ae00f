"""Of push notification addresses only the origin in clear: the whole has been sealed beside it all along."""

from alembic import op

revision = "0018"
down_revision = "0017"

CUT = r"""
UPDATE task_push_configurations
SET url = regexp_replace(url, '^([A-Za-z]+://)([^/?#]*@)?([^/?#]*).*$', '\1\3')
"""


def upgrade() -> None:
    """Cut the addresses; the release before posts to the sealed one as well."""
    op.execute(CUT)
