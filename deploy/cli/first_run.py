"""Set up an empty installation, and write the first credentials to a file exactly once, even after a crash.

Only this file contains the secrets in clear text. The file is written as a draft before the transaction commits, and
renamed after the commit. If a later run finds a draft, that run checks the database. It renames the draft if the
draft's organization exists, and deletes the draft if not.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

from shared.a2a.behaviors.default_agent import equip_default_agent
from shared.config.settings import Settings
from shared.credits.amounts import parse_credits
from shared.credits.ledger import FIRST_RUN, top_up
from shared.db.database import Database, Session
from shared.identity.access.authorization import OPERATOR
from shared.identity.bootstrap import Credentials, bootstrap
from shared.identity.directory.organizations import get_organization
from shared.identity.errors import ResourceNotFound


def first_run(database: Database, settings: Settings, path: Path) -> Credentials | None:
    """Set up an empty installation and write its credentials to `path`. Return None if the installation is not empty.

    Every run also creates the default agent if the agent is missing.
    """
    draft = path.with_name(f"{path.name}.draft")

    # This function is called before the transaction commits. So a crash can leave a draft without an organization, but
    # never an organization without its secrets.
    def save_credentials(credentials: Credentials) -> None:
        _write_durably(draft, credentials.document())

    def on_created(session: Session, organization_id: UUID) -> None:
        amount = parse_credits(settings.first_run_credits)
        if amount > 0:
            top_up(
                session, organization_id=organization_id, amount=amount, reference=FIRST_RUN, actor=OPERATOR
            )

    credentials = bootstrap(database, settings, save_credentials=save_credentials, on_created=on_created)
    with database.transaction() as session:
        equip_default_agent(session, settings)
    if credentials is None:
        _resolve_draft(database, draft, path)
    else:
        _publish(draft, path)
    return credentials


def _resolve_draft(database: Database, draft: Path, path: Path) -> None:
    """Rename or delete the draft of an earlier run that was killed. Do nothing if no draft exists."""
    try:
        organization_id = UUID(json.loads(draft.read_text())["organizationId"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError):
        # Delete an incomplete draft: a draft is complete before the commit, so no organization belongs to this one.
        draft.unlink(missing_ok=True)
        return
    if _exists(database, organization_id):
        _publish(draft, path)
    else:
        draft.unlink(missing_ok=True)


def _exists(database: Database, organization_id: UUID) -> bool:
    with database.transaction() as session, contextlib.suppress(ResourceNotFound):
        get_organization(session, actor=OPERATOR, organization_id=organization_id)
        return True
    return False


def _publish(draft: Path, path: Path) -> None:
    """Rename the draft to `path`, unless a concurrent run has renamed the draft already.

    A file that exists at `path` contains the credentials of an earlier database, so it is renamed to `….earlier`.
    """
    with contextlib.suppress(FileNotFoundError):
        # Check that the draft exists too: if a concurrent run has renamed the draft, the file at `path` must stay.
        if path.exists() and draft.exists():
            path.rename(path.with_name(f"{path.name}.earlier"))
        draft.rename(path)
    _sync_directory(path.parent)


def _write_durably(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file that only its owner can read, and flush it to the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Remove the draft of an earlier run, because O_EXCL fails if the file exists. O_EXCL prevents that this process
    # follows a link that another account has prepared.
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(json.dumps(document, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    # Sync the directory too: the directory contains the file's name, which a crash could otherwise lose.
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
