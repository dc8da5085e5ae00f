"""The tables of endpoints and of turns that were sent to them, mirrored by migrations 0026 and 0030.

`deployment_endpoints`: `interface_url` and the following columns come from the agent's last card, and are null until a
card was read. `card` is the unchanged document, and stays if a later read fails.

`remote_turns`: `sent_at` is written before the message leaves, and reset if it did not leave. `remote_task_id` is the
id of the agent's task, known from the first response. `remote_context_id` is the context of the agent's task. A turn is
open until the agent's task has ended or needs no cancellation. `updates_seen` is the turn's number of updates at the
last death of a worker.
"""

import sqlalchemy as sa

from shared.a2a.exact_json import ExactJson
from shared.db.schema import created_at, instant, metadata, one_of, required

deployment_endpoints = sa.Table(
    "deployment_endpoints",
    metadata,
    sa.Column("deployment_id", sa.ForeignKey("deployments.id"), primary_key=True),
    required("organization_id", sa.Uuid),
    required("url", sa.Text),
    sa.Column("card_url", sa.Text),
    sa.Column("interface_override", sa.Text),
    sa.Column("credential_header", sa.Text),
    sa.Column("credential_encrypted", sa.LargeBinary),
    required("resends", sa.Boolean, server_default=sa.text("false")),
    sa.Column("binding", sa.Text),
    sa.Column("interface_url", sa.Text),
    sa.Column("tenant", sa.Text),
    required("streams", sa.Boolean, server_default=sa.text("false")),
    sa.Column("has_list_tasks", sa.Boolean),
    sa.Column("card", ExactJson),
    sa.Column("etag", sa.Text),
    sa.Column("problem", sa.Text),
    instant("checked_at"),
    instant("next_check_at", nullable=False, server_default=sa.text("now()"), index=True),
    instant("updated_at", nullable=False, server_default=sa.text("now()")),
    created_at(),
    sa.Index("ix_deployment_endpoints_due", "organization_id", "next_check_at"),
    sa.CheckConstraint("(credential_header IS NULL) = (credential_encrypted IS NULL)", name="credential"),
    one_of("binding", "http+json", "jsonrpc"),
    sa.CheckConstraint("(binding IS NULL) = (interface_url IS NULL)", name="interface"),
)


remote_turns = sa.Table(
    "remote_turns",
    metadata,
    sa.Column("turn_id", sa.ForeignKey("task_turns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("task_id", sa.Uuid, nullable=False, index=True),
    instant("sent_at"),
    sa.Column("remote_task_id", sa.Text),
    sa.Column("remote_context_id", sa.Text),
    sa.Column("updates_seen", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("is_open", sa.Boolean, nullable=False, server_default=sa.text("true")),
    created_at(),
    sa.Index("ix_remote_turns_open", "created_at", postgresql_where=sa.text("is_open")),
)
