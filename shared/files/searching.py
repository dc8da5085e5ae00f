"""Find files by media type, and by the beginnings of words in their names.

The index of words (`file_words`) also contains each file's owner, but is not in the order of a list. So a search
scans a limited number of the newest files first, where it finds frequent words. Then it uses the index, which returns
few rows for a rare word. Together this limits the cost of a search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, ColumnElement, CompoundSelect, Text, cast, func, select, true

from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.files.tables import file_words, files

SCANNED_FILES = 2000
"""The number of newest files that are scanned before the index is used. A scan takes a few microseconds per file."""
MAX_OWNERS_SCANNED = 10
"""The most owners whose newest files are scanned, SCANNED_FILES of each. If a scope has more owners, only the index is
used, which reads all matching files of these owners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordQuery:
    """The words of a search: those of the scope (`sql/files_vector.sql`), of a media type, and of a name."""

    scope_words: Sequence[str]
    media_type: str | None
    name: str | None

    def __post_init__(self) -> None:
        """Raise ValidationFailed if the name has neither a letter nor a digit."""
        if self.name is not None and not any(map(str.isalnum, self.name)):
            message = "must have a letter or a digit"
            raise ValidationFailed(errors=[FieldError(location="query", name="name", message=message)])

    @property
    def is_met(self) -> ColumnElement[bool]:
        """The SQL condition that a file has all words of the search. Its query is evaluated once per statement."""
        asked = func.files_query(cast(list(self.scope_words), ARRAY(Text)), self.media_type, self.name)
        return file_words.c.words.bool_op("@@")(asked)


def search_newest(
    session: Session, word_query: WordQuery, newest: CompoundSelect[Any], count: int
) -> tuple[Sequence[UUID], UUID | None]:
    """Return matches among the newest SCANNED_FILES, and the id of the oldest scanned file.

    The id is None if there are no older files to search.
    """
    among = newest.subquery()
    recent = select(among.c.id).order_by(among.c.id.desc()).limit(SCANNED_FILES).cte("recent")
    # Look up each recent file: a lookup by word in the index might return very many older matches.
    words = select(file_words.c.file_id).where(file_words.c.file_id == recent.c.id, word_query.is_met)
    met = (
        select(recent.c.id)
        .select_from(recent.join(words.limit(1).lateral(), true()))
        .order_by(recent.c.id.desc())
        .limit(count)
        .cte("met")
    )
    oldest = select(recent.c.id).order_by(recent.c.id).limit(1).scalar_subquery()
    looked_at = select(func.count()).select_from(recent).scalar_subquery()
    found = select(func.array_agg(met.c.id)).scalar_subquery()
    row = session.execute(
        select(found.label("found"), oldest.label("oldest"), looked_at.label("looked_at"))
    ).one()
    return row.found or (), row.oldest if row.looked_at == SCANNED_FILES else None


def search_matching(
    session: Session, word_query: WordQuery, conditions: Sequence[ColumnElement[bool]], count: int
) -> Sequence[UUID]:
    """Return the newest files that the index finds and that meet the conditions."""
    # Use MATERIALIZED and LATERAL: otherwise the planner reads the files, newest first, until enough of them match, and
    # may read all files.
    found = select(file_words.c.file_id).where(word_query.is_met).cte("found").prefix_with("MATERIALIZED")
    is_it = files.c.id == found.c.file_id
    file = select(files.c.id).where(is_it, *conditions).limit(1).lateral()
    order = found.c.file_id.desc()
    statement = select(file.c.id).select_from(found.join(file, true())).order_by(order).limit(count)
    return session.execute(statement).scalars().all()
