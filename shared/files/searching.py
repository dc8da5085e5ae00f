"""Find files by the beginnings of words in their names, and by media type.

The index of words (`file_words`) also has each file's owner, but no order. Frequent words are found among the newest
files, rare ones by the index, which then returns little. Both bounds together bound the cost of a search.
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
"""How many of the newest files are scanned, at a few microseconds each, before the index is used."""
MAX_OWNERS_SCANNED = 10
"""The most owners of which the newest files are scanned, SCANNED_FILES of each. For more, the index is used at once and
reads all of their files that match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordQuery:
    """The search: words of the scope (`sql/files_vector.sql`), a media type or family, and words of a name."""

    scope_words: Sequence[str]
    media_type: str | None
    name: str | None

    def __post_init__(self) -> None:
        """Raise ValidationFailed for a name without a letter or digit."""
        if self.name is not None and not any(map(str.isalnum, self.name)):
            message = "must have a letter or a digit"
            raise ValidationFailed(errors=[FieldError(location="query", name="name", message=message)])

    @property
    def is_met(self) -> ColumnElement[bool]:
        """The condition that a file has all words; evaluated once for a statement."""
        asked = func.files_query(cast(list(self.scope_words), ARRAY(Text)), self.media_type, self.name)
        return file_words.c.words.bool_op("@@")(asked)


def search_newest(
    session: Session, word_query: WordQuery, newest: CompoundSelect[Any], count: int
) -> tuple[Sequence[UUID], UUID | None]:
    """Return matches among the newest SCANNED_FILES, and the oldest file scanned, or None if none is older."""
    among = newest.subquery()
    recent = select(among.c.id).order_by(among.c.id.desc()).limit(SCANNED_FILES).cte("recent")
    # Check file by file and not by the index, which may have very many older matches.
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
    """Return the newest matches of the index that meet the conditions."""
    # MATERIALIZED and LATERAL: else the planner walks the files, newest first, until enough match, which may be never.
    found = select(file_words.c.file_id).where(word_query.is_met).cte("found").prefix_with("MATERIALIZED")
    is_it = files.c.id == found.c.file_id
    file = select(files.c.id).where(is_it, *conditions).limit(1).lateral()
    order = found.c.file_id.desc()
    statement = select(file.c.id).select_from(found.join(file, true())).order_by(order).limit(count)
    return session.execute(statement).scalars().all()
