"""Queue imports of a message's attachments, or pause the imports if an administrator must first resolve an error.

Because of the unique key (distribution, network, message id, attachment id), repeated pushes of an attachment create
only one import.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from shared.config.settings import Settings
from shared.db.database import Session
from shared.db.statements import Prepared
from shared.encryption import Encryption
from shared.errors import DomainError
from shared.media.attachments import Attachment
from shared.media.errors import TooManyImports
from shared.media.importing.authority import (
    UNPROVEN,
    Proof,
    authorize_import,
    find_organization,
    needs_operator,
)
from shared.media.importing.descriptions import normalize
from shared.media.importing.imports import (
    STANDARD,
    FetchMedia,
    Import,
    ImportState,
    get_repeated,
    insert_import,
)

PAUSED_PER_QUEUED = 10
"""The limit of paused imports, as a multiple of QUEUED_IMPORTS. It is higher because paused imports cost little."""


def queue_imports(
    session: Session,
    settings: Settings,
    *,
    distribution_id: UUID,
    network: str,
    attachments: Sequence[Attachment],
    secret_headers: Mapping[str, Mapping[str, str]] | None = None,
    proof: Proof = UNPROVEN,
) -> tuple[Import, ...]:
    """Queue imports of a message's attachments. Return one import for each attachment, in order.

    If an earlier push created the import of an attachment, that import is returned. `secret_headers` maps an
    attachment's id to the headers that are sent when the attachment is fetched. A repeated generic push must describe
    the attachment as the first push did; descriptions of native networks are not compared. A native network never
    gets an error that an operator must resolve: the imports are paused until the cause is removed.

    Raises ImportConflict, TooManyImports, and ValidationFailed for invalid ids. For a generic push, and for a
    distribution that does not exist, raises what `authorize_import` raises.
    """
    organization_id, held_code = _authorize(session, distribution_id, network, proof)
    if len(attachments) > settings.queued_imports:
        # Refuse a message with more attachments than the limit before any row is written.
        raise TooManyImports
    attachments = [normalize(attachment) for attachment in attachments]
    encryption = Encryption(settings)
    state = ImportState.QUEUED if held_code is None else ImportState.HELD
    owner = {
        "distribution_id": distribution_id,
        "organization_id": organization_id,
        "network": network,
        "state": state.value,
        "code": held_code,
    }
    found: dict[int, Import] = {}
    # Insert in the order of the unique key, so that two concurrent pushes of the same message never deadlock.
    for index in sorted(range(len(attachments)), key=lambda index: _key(attachments[index])):
        attachment = attachments[index]
        headers = (secret_headers or {}).get(attachment.attachment_id)
        secret = encryption.encrypt(json.dumps(dict(headers))) if headers else None
        found[index] = _queue(session, owner, attachment, secret)
    # Check the limit after the inserts, so that new rows are counted. Never refuse a push that created no import.
    if any(queued.is_new for queued in found.values()):
        limit = settings.queued_imports * (1 if held_code is None else PAUSED_PER_QUEUED)
        refuse_excess(session, distribution_id, state, limit)
    return tuple(found[index] for index in range(len(attachments)))


def _queue(
    session: Session, owner: Mapping[str, Any], attachment: Attachment, secret: bytes | None
) -> Import:
    queued = insert_import(session, {**owner, "headers_encrypted": secret}, attachment)
    if queued is None:
        return get_repeated(
            session,
            distribution_id=owner["distribution_id"],
            network=owner["network"],
            attachment=attachment,
        )
    if queued.state is ImportState.QUEUED:
        session.enqueue(FetchMedia())
    return queued


def _authorize(
    session: Session, distribution_id: UUID, network: str, proof: Proof
) -> tuple[UUID, str | None]:
    """Return the organization, and the code of the error for which the imports must pause; None if they need not."""
    try:
        return authorize_import(session, distribution_id, proof).organization_id, None
    except DomainError as error:
        if network == STANDARD or not needs_operator(error):
            raise
        return find_organization(session, distribution_id), error.code


def refuse_excess(session: Session, distribution_id: UUID, state: ImportState, limit: int) -> None:
    """Raise TooManyImports if more than `limit` imports are in this state. At most `limit` + 1 rows are counted."""
    count = _COUNT_HELD if state is ImportState.HELD else _COUNT_WAITING
    row = session.fetch_one(count, {"distribution_id": distribution_id, "limit": limit + 1})
    if row is not None and row.waiting > limit:
        raise TooManyImports


def _key(attachment: Attachment) -> tuple[str, str]:
    return attachment.message_id, attachment.attachment_id


_COUNT_HELD = Prepared("""
SELECT count(*) AS waiting FROM (
    SELECT FROM media_imports WHERE distribution_id = %(distribution_id)s AND state = 'Held' LIMIT %(limit)s
) waiting
""")
_COUNT_WAITING = Prepared("""
SELECT count(*) AS waiting FROM (
    SELECT FROM media_imports WHERE distribution_id = %(distribution_id)s AND state IN ('Queued', 'Fetching')
    LIMIT %(limit)s
) waiting
""")
