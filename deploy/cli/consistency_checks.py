"""The checks of `doctor --deep`: compare the blob store with the database, and reconcile the ledger."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO
from uuid import UUID

from deploy.cli.command_context import document
from deploy.cli.health_report import Finding, State, passed, problem
from shared.credits.reconciliation import reconcile
from shared.db.database import Database
from shared.files.blobs.base import BlobStore
from shared.files.maintenance.store_audit import SAMPLE, Discrepancy, DiscrepancyKind, Progress, audit
from shared.files.maintenance.store_repair import discard, repair
from shared.files.metering.storage_check import find_storage_discrepancies

SHOWN = 5
SUBJECT = "stored content"
_RESTORE = (
    "Restore these blobs from another copy of the store, then repair again; until then reads return 503."
)
_REPAIR = "Run `quartermaster doctor --deep --repair`."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Description:
    detail: str
    remedy: str
    repaired: str = ""
    is_wrong: bool = False


_DESCRIPTIONS = {
    DiscrepancyKind.MISSING: _Description(detail="have no bytes", remedy=_RESTORE, is_wrong=True),
    DiscrepancyKind.RESIZED: _Description(
        detail="have bytes of another length", remedy=_RESTORE, is_wrong=True
    ),
    DiscrepancyKind.DECAYED: _Description(
        detail="have bytes of another digest", remedy=_RESTORE, is_wrong=True
    ),
    DiscrepancyKind.SOUND: _Description(
        detail="are marked as damaged but are intact", remedy=_REPAIR, repaired="can be read again"
    ),
    DiscrepancyKind.UNPLACED: _Description(
        detail="are recorded as placed but are still in staging", remedy=_REPAIR, repaired="were placed"
    ),
    DiscrepancyKind.ENDED: _Description(
        detail="of deleted or expired files still have bytes", remedy=_REPAIR, repaired="are being removed"
    ),
    DiscrepancyKind.ROWLESS: _Description(
        detail="have bytes but no row that records their place",
        remedy=_REPAIR,
        repaired="can be read again",
        is_wrong=True,
    ),
    DiscrepancyKind.UNKNOWN: _Description(
        detail="are unknown to the database",
        # Do not discard this content with --repair alone: a newer backup of the database may refer to the content.
        remedy="They may be newer than the database. If you will not restore a newer backup of it, run"
        " `quartermaster doctor --deep --discard-unknown`.",
        repaired="are being removed",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepCheckOptions:
    """Options of `doctor --deep`: what to repair, how many versions to read, and where to write the report."""

    repairs: bool = False
    discards_unknown: bool = False
    sample: int = SAMPLE
    report: TextIO | None = field(default=None, repr=False)
    progress: Progress = lambda *_: None


def check_content(database: Database, store: BlobStore, options: DeepCheckOptions) -> Iterator[Finding]:
    """Yield one finding for each kind of difference between the blob store and the database.

    If `options` requests a repair, repair each discrepancy that can be repaired without losing content. Write each
    discrepancy to the report as one JSON line. Raises BlobStoreUnavailable or ServiceUnavailable; earlier repairs stay.
    """
    counted: dict[tuple[DiscrepancyKind, bool], int] = defaultdict(int)
    shown: dict[tuple[DiscrepancyKind, bool], list[UUID]] = defaultdict(list)
    for found in audit(database, store, sample=options.sample, progress=options.progress):
        is_repaired = _repair(database, store, found, options)
        counted[found.kind, is_repaired] += 1
        # Keep only counts and a few ids in memory, because a lost store causes millions of discrepancies.
        if len(shown[found.kind, is_repaired]) < SHOWN:
            shown[found.kind, is_repaired].append(found.version_id)
        if options.report is not None:
            options.report.write(json.dumps(_line(found, is_repaired=is_repaired)) + "\n")
    for (kind, is_repaired), count in sorted(counted.items()):
        yield _finding(kind, count, shown[kind, is_repaired], is_repaired=is_repaired)
    if not counted:
        yield passed(SUBJECT, "rows and bytes agree")


def _repair(database: Database, store: BlobStore, found: Discrepancy, options: DeepCheckOptions) -> bool:
    # Only content of the kind UNKNOWN needs the option --discard-unknown, and discard() skips other kinds.
    if options.discards_unknown and discard(database, found):
        return True
    return options.repairs and repair(database, store, found)


def _line(found: Discrepancy, *, is_repaired: bool) -> dict[str, object]:
    # Keep the member name `isMended`, which scripts read. Write the digest in hexadecimal: JSON has no bytes.
    line = document(found) | {"isMended": is_repaired}
    sha256 = line.pop("contentSha256")
    return line | {"contentSha256": sha256.hex() if isinstance(sha256, bytes) else None}


def _finding(kind: DiscrepancyKind, count: int, shown: list[UUID], *, is_repaired: bool) -> Finding:
    description = _DESCRIPTIONS[kind]
    names = ", ".join(map(str, shown)) + (", …" if count > len(shown) else "")
    if is_repaired:
        detail = f"{count} versions {description.repaired}: {names}"
        return Finding(subject=SUBJECT, state=State.REPAIRED, detail=detail)
    return problem(
        SUBJECT,
        f"{count} versions {description.detail}: {names}",
        description.remedy,
        is_wrong=description.is_wrong,
    )


def check_ledger(database: Database) -> Iterator[Finding]:
    """Yield a finding that states whether the ledger's entries, balances, usage and stored bytes agree."""
    with database.transaction() as session:
        found = len(reconcile(session))
    # Run this check outside of the transaction: the check reads versions in many batches, and an open snapshot
    # would hold back vacuum for that time.
    found += len(find_storage_discrepancies(database))
    if found:
        yield problem(
            "ledger",
            f"{found} figures do not agree",
            "List them with `quartermaster credits prove`.",
            is_wrong=True,
        )
    else:
        yield passed("ledger", "all figures agree")
