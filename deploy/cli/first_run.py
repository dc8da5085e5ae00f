"""Hand over the credentials of a first run, exactly once and through any crash.

The secrets exist in clear only in the file written here. It is on the disk, under a draft's name, before the
transaction that makes them valid commits, and gets its name afterwards. A process that finds a draft asks the
database whether that transaction committed. The first credits are entered in the same transaction; the default agent
is checked at every start.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

from shared.a2a.agents.default_agent import equip_default_agent
from shared.config.settings import Settings
from shared.credits.amounts import parse_credits
from shared.credits.ledger import FIRST_RUN, top_up
from shared.db.database import Database, Session
from shared.identity.access.authorization import OPERATOR
from shared.identity.bootstrap import Credentials, bootstrap
from shared.identity.directory.organizations import get_organization
from shared.identity.errors import ResourceNotFound


def first_run(database: Database, settings: Settings, path: Path) -> Credentials | None:
    """Set up an empty installation and write its credentials to `path`; None when it is set up already."""
    draft = path.with_name(f"{path.name}.draft")

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
        _settle(database, draft, path)
    else:
        _publish(draft, path)
    return credentials


def _settle(database: Database, draft: Path, path: Path) -> None:
    """Finish, or forget, what an earlier run left behind when it died."""
    try:
        organization_id = UUID(json.loads(draft.read_text())["organizationId"])
    except FileNotFoundError:
        return
    except (ValueError, KeyError):
        draft.unlink(missing_ok=True)  # died while writing, and so before the commit
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
    """Give the draft its name; another process that found it first may have done so already.

    Credentials of another database that stand there are worth keeping: they move aside.
    """
    with contextlib.suppress(FileNotFoundError):
        if path.exists() and draft.exists():
            path.rename(path.with_name(f"{path.name}.earlier"))
        draft.rename(path)
    _sync_directory(path.parent)


def _write_durably(path: Path, document: dict[str, Any]) -> None:
    """Write a file for its owner's eyes only, and wait until the disk has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(json.dumps(document, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
