"""Queue the attachments of a message, or hold them where somebody has to mend something first.

The unique key of distribution, network, message id and attachment id makes every push, however often repeated, one
import.
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
"""So many times what may be queued may be held: rows that wait for somebody cost little."""


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
    """Queue the fetching of a message's attachments; give the imports in order, those made before included.

    `secret_headers` go with the request for an attachment, by its id. A generic push must describe an attachment as
    it did before; a native network vouches for its ids, and is never told of what keeps us from taking them: its
    imports are held until that has passed.

    Raises ImportConflict, TooManyImports, ValidationFailed for ids that cannot be kept; for a generic push, and for a
    distribution that does not exist, what `authorize_import` raises.
    """
    organization_id, held_code = _authorize(session, distribution_id, network, proof)
    if len(attachments) > settings.queued_imports:
        # More than may wait: refused before a row is written.
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
    # Ordered by key, so that two pushes of the same message never deadlock.
    for index in sorted(range(len(attachments)), key=lambda index: _key(attachments[index])):
        attachment = attachments[index]
        headers = (secret_headers or {}).get(attachment.attachment_id)
        secret = encryption.encrypt(json.dumps(dict(headers))) if headers else None
        found[index] = _queue(session, owner, attachment, secret)
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
    """Give whose imports these are, and the code of what keeps a network's from being fetched now."""
    try:
        return authorize_import(session, distribution_id, proof).organization_id, None
    except DomainError as error:
        if network == STANDARD or not needs_operator(error):
            raise
        return find_organization(session, distribution_id), error.code


def refuse_excess(session: Session, distribution_id: UUID, state: ImportState, limit: int) -> None:
    """Raise TooManyImports above the limit, which bounds the count as well."""
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
