"""The behaviors of a worker process, built once from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass

import redis

from shared.a2a.behaviors.linked_files import LinkedFiles
from shared.a2a.behaviors.model_backed import ModelBackedBehavior
from shared.a2a.behaviors.model_calls import ModelCalls
from shared.a2a.behaviors.scripted import ScriptedBehavior
from shared.a2a.behaviors.stored_files import StoredFiles
from shared.a2a.remote.behavior import RemoteBehavior
from shared.a2a.updates import Behavior, BehaviorKind
from shared.config.settings import Settings
from shared.db.database import Database
from shared.files.blobs.base import BlobStore
from shared.messaging.valkey import connect_valkey
from shared.models.call_admission import CallAdmission
from shared.models.catalog_file import CatalogFile
from shared.models.concurrency_limits import Shares
from shared.models.engine import Engine
from shared.models.heartbeats import Heartbeats
from shared.models.model_slots import ModelSlots
from shared.models.providers.routing import Router
from shared.models.settlements import Settlements


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviors:
    """The behaviors of a process by kind, and the object with which the model behavior calls models."""

    by_kind: Mapping[BehaviorKind, Behavior]
    calls: ModelCalls


def build_behaviors(
    database: Database, store: BlobStore, valkey: redis.Redis, settings: Settings
) -> Behaviors:
    """Build the behaviors. Raises CatalogInvalid."""
    files = StoredFiles(database, store, settings)
    linked = LinkedFiles(database, store, settings)
    models_valkey = valkey
    if settings.models_redis_url:
        models_valkey = connect_valkey(settings.models_redis_url)
    shares = Shares(database, models_valkey, slots_when_unknown=settings.queued_model_calls)
    engine = Engine(
        database=database,
        router=Router(),
        heartbeats=Heartbeats(database),
        settlements=Settlements(database),
    )
    calls = ModelCalls(
        engine=engine,
        catalog=CatalogFile(settings.models_config).watch(),
        admission=CallAdmission(
            database, shares, ModelSlots(models_valkey), max_wait_seconds=settings.slot_wait_seconds
        ),
        reserved_completion_tokens=settings.reserved_completion_tokens,
    )
    model_backed = ModelBackedBehavior(
        calls,
        files,
        linked,
        inline_limit_bytes=settings.a2a_inline_artifact_bytes,
    )
    scripted = ScriptedBehavior(files, path=settings.a2a_script)
    by_kind: Mapping[BehaviorKind, Behavior] = {
        BehaviorKind.MODEL: model_backed,
        BehaviorKind.SCRIPT: scripted,
        BehaviorKind.REMOTE: RemoteBehavior(database, files, linked, settings),
    }
    return Behaviors(by_kind=by_kind, calls=calls)
