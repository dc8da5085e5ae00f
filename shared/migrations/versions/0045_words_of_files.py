"""The words that a file is found by, kept by a trigger, so that the release before writes them too."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TSVECTOR

from shared.migrations.functions import load_function

revision = "0045"
down_revision = "0044"

_FILL = """
INSERT INTO file_words (file_id, words)
SELECT files.id, files_vector(organization_id, owner_id, media_type, file_name)
FROM files JOIN file_versions ON file_versions.id = files.current_version_id
WHERE NOT EXISTS (SELECT FROM file_words WHERE file_words.file_id = files.id)
"""


def upgrade() -> None:
    """Make the table, fill it, and then keep it: uploads wait only while what came meanwhile is filled in."""
    connection = op.get_bind()
    for name in ("files_name_words", "files_vector", "files_note_words"):
        load_function(connection, name)
    op.create_table(
        "file_words",
        sa.Column("file_id", sa.Uuid, nullable=False),
        sa.Column("words", TSVECTOR, nullable=False),
        sa.PrimaryKeyConstraint("file_id", name="pk_file_words"),
    )
    op.execute(_FILL)
    op.create_index(
        "ix_file_words_words",
        "file_words",
        ["words"],
        postgresql_using="gin",
        postgresql_with={"gin_pending_list_limit": "256"},
    )
    op.execute(
        "CREATE TRIGGER note_words AFTER INSERT ON file_versions "
        "FOR EACH ROW EXECUTE FUNCTION files_note_words()"
    )
    op.execute(_FILL)
