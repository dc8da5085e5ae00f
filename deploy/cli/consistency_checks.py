"""The part of `doctor` that takes its time: compare the store with the rows, and prove the ledger."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO
from uuid import UUID

from deploy.cli.command_context import document
from deploy.cli.health_report import Finding, State, amiss, good
from shared.credits.reconciliation import reconcile
from shared.db.database import Database
from shared.files.blobs.base import BlobStore
from shared.files.maintenance.store_audit import SAMPLE, Discrepancy, DiscrepancyKind, Progress, audit
from shared.files.maintenance.store_repair import discard, repair
from shared.files.metering.storage_check import find_storage_discrepancies

SHOWN = 5
SUBJECT = "stored content"
_PUT_BACK = (
    "Put these bytes back from another copy of the store, then repair again; until then readers get 503."
)
_REPAIR = "Run `quartermaster doctor --deep --repair`."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    said: str
    remedy: str
    mended: str = ""
    is_wrong: bool = False


_MEANINGS = {
    DiscrepancyKind.MISSING: _Meaning(said="have no bytes", remedy=_PUT_BACK, is_wrong=True),
    DiscrepancyKind.RESIZED: _Meaning(said="have bytes of another length", remedy=_PUT_BACK, is_wrong=True),
    DiscrepancyKind.DECAYED: _Meaning(said="have bytes of another digest", remedy=_PUT_BACK, is_wrong=True),
    DiscrepancyKind.SOUND: _Meaning(
        said="are marked as damaged, and are sound", remedy=_REPAIR, mended="are given to readers again"
    ),
    DiscrepancyKind.UNPLACED: _Meaning(
        said="are recorded as placed, and lie in staging", remedy=_REPAIR, mended="were placed"
    ),
    DiscrepancyKind.ENDED: _Meaning(
        said="of files that ended still have bytes", remedy=_REPAIR, mended="are being removed"
    ),
    DiscrepancyKind.ROWLESS: _Meaning(
        said="have their bytes, and no record of where",
        remedy=_REPAIR,
        mended="are given to readers again",
        is_wrong=True,
    ),
    DiscrepancyKind.UNKNOWN: _Meaning(
        said="are unknown to the database",
        remedy="They may be newer than the database. If no newer backup of it is to be restored, run"
        " `quartermaster doctor --deep --discard-unknown`.",
        mended="are being removed",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How deep to look, and what to do about what is found."""

    repairs: bool = False
    discards_unknown: bool = False
    sample: int = SAMPLE
    report: TextIO | None = field(default=None, repr=False)
    progress: Progress = lambda *_: None


def examine_content(database: Database, store: BlobStore, depth: Depth) -> Iterator[Finding]:
    """Compare store and rows; mend what may be mended if that is wanted. Every discrepancy goes to the report.

    Raises BlobStoreUnavailable, ServiceUnavailable.
    """
    counted: dict[tuple[DiscrepancyKind, bool], int] = defaultdict(int)
    shown: dict[tuple[DiscrepancyKind, bool], list[UUID]] = defaultdict(list)
    for found in audit(database, store, sample=depth.sample, progress=depth.progress):
        is_mended = _mend(database, store, found, depth)
        counted[found.kind, is_mended] += 1
        if len(shown[found.kind, is_mended]) < SHOWN:
            shown[found.kind, is_mended].append(found.version_id)
        if depth.report is not None:
            depth.report.write(json.dumps(_line(found, is_mended=is_mended)) + "\n")
    for (kind, is_mended), count in sorted(counted.items()):
        yield _finding(kind, count, shown[kind, is_mended], is_mended=is_mended)
    if not counted:
        yield good(SUBJECT, "rows and bytes agree")


def _mend(database: Database, store: BlobStore, found: Discrepancy, depth: Depth) -> bool:
    if depth.discards_unknown and discard(database, found):
        return True
    return depth.repairs and repair(database, store, found)


def _line(found: Discrepancy, *, is_mended: bool) -> dict[str, object]:
    line = document(found) | {"isMended": is_mended}
    sha256 = line.pop("contentSha256")
    return line | {"contentSha256": sha256.hex() if isinstance(sha256, bytes) else None}


def _finding(kind: DiscrepancyKind, count: int, shown: list[UUID], *, is_mended: bool) -> Finding:
    meaning = _MEANINGS[kind]
    names = ", ".join(map(str, shown)) + (", …" if count > len(shown) else "")
    if is_mended:
        said = f"{count} versions {meaning.mended}: {names}"
        return Finding(subject=SUBJECT, state=State.MENDED, said=said)
    return amiss(
        SUBJECT, f"{count} versions {meaning.said}: {names}", meaning.remedy, is_wrong=meaning.is_wrong
    )


def examine_ledger(database: Database) -> Iterator[Finding]:
    """Prove that entries, balances, usage and storage agree."""
    with database.transaction() as session:
        found = len(reconcile(session))
    found += len(find_storage_discrepancies(database))
    if found:
        yield amiss(
            "ledger",
            f"{found} figures do not agree",
            "See which with `quartermaster credits prove`.",
            is_wrong=True,
        )
    else:
        yield good("ledger", "all figures agree")
