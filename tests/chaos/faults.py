"""The fault points of each kind of process: between any two steps of its work (`shared/failpoints.py`)."""

from collections.abc import Mapping, Sequence

_RECEIVING = ("upload.opened", "upload.received", "upload.sealed", "upload.before_commit", "upload.committed")
WEB = (
    *("upload.begun", *_RECEIVING, "jobs.before_publish", "delete.before_commit", "delete.committed"),
    *("renew.before_commit", "renew.committed", "invocation.held", "invocation.queued", "push.stored"),
    *("send.before_commit", "sign_in.before_commit", "sign_in.committed"),
)
WORKERS: Mapping[str, Sequence[str]] = {
    "files": ("placement.claimed", "placement.placed", "placement.recorded"),
    "models": ("invocation.dispatched", "invocation.opened", "credits.settled", "invocation.settled"),
    "media": (
        *("import.claimed", "import.located", "import.connected", *_RECEIVING, "import.stored"),
        *("import.failing", "import.before_failure", "import.failed"),
        *("deliveries.claimed", "deliveries.posted", "deliveries.before_commit", "deliveries.recorded"),
    ),
    "agents": (
        *("turn.claimed", "turn.before_append", "turn.appended", "agents.file_stored"),
        *("remote.marked", "remote.heard", "remote.bound"),
        *(
            "agents.held",
            "invocation.dispatched",
            "invocation.opened",
            "invocation.settled",
            "credits.settled",
        ),
        *("upload.before_commit", "upload.committed"),
    ),
    "background": (
        *("collection.claimed", "collection.removed", "collection.recorded"),
        *("expiry.before_commit", "expiry.expired", "sweep.doomed", "sweep.discarded"),
        "notifications.before_commit",
    ),
    "ledger": ("storage.measured", "storage.before_commit", "storage.folded"),
}
