"""A model's `concurrency_limit`: slots in Valkey, over all processes, as leases that organizations share.

The limit protects upstreams with limited capacity, such as a local server, and shares this capacity fairly. A free slot
goes to the waiting organization with the fewest slots; of several such organizations, to the one that has waited
longest. A refused organization keeps its place for `WANTED_SECONDS`, in which its callers retry. If only one
organization makes calls, it may use seven eighths of the slots.

The web process takes a call's slot at admission, and the worker takes the slot over; a queued call occupies its slot. A
lease that its process does not renew expires by Valkey's clock, so a killed process blocks its slots for seconds only.
If Valkey is unavailable, calls proceed without the limit, because the limit protects an upstream and not credits.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redis import Redis
from redis.exceptions import RedisError

from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import InFlight

log = get_logger(__name__)

LEASE_SECONDS = 15.0
RENEW_EVERY_SECONDS = 5.0
WANTED_SECONDS = 3.0
"""How long a refused organization keeps its place in the queue; clients retry after a second or two."""
ALPHA = 7
"""An organization alone may use seven eighths of the slots, and all of fewer than eight."""

# Take a slot. KEYS are three sorted sets: the leases by expiry, the waiting organizations by the start of their wait,
# and the waiting organizations by their last try. A lease's name begins with its organization. Returns -1 if a slot was
# taken, else the organization's number of slots.
_TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local organization, lease, limit, alpha = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - ARGV[6])) do
    redis.call('ZREM', KEYS[2], gone)
    redis.call('ZREM', KEYS[3], gone)
end
local leases = redis.call('ZRANGE', KEYS[1], 0, -1)
local left, active, use = limit - #leases, 1, {[organization] = 0}
for _, held in ipairs(leases) do
    local holder = string.sub(held, 1, #organization)
    if not use[holder] then active = active + 1 end
    use[holder] = (use[holder] or 0) + 1
    if held == lease then return -1 end
end
local own, is_before = use[organization], true
if left > 0 then
    for _, waiting in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
        local others = use[waiting] or 0
        if not use[waiting] then active = active + 1 end
        if waiting == organization then is_before = false
        elseif others < own or (others == own and is_before) then left = left - 1 end
    end
end
if left > 0 and own < math.max(alpha * left, limit / (active + 1)) then
    redis.call('ZADD', KEYS[1], now + ARGV[5], lease)
    redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[5] * 2000))
    redis.call('ZREM', KEYS[2], organization)
    redis.call('ZREM', KEYS[3], organization)
    return -1
end
redis.call('ZADD', KEYS[2], 'NX', now, organization)
redis.call('ZADD', KEYS[3], now, organization)
redis.call('PEXPIRE', KEYS[2], math.ceil(ARGV[6] * 2000))
redis.call('PEXPIRE', KEYS[3], math.ceil(ARGV[6] * 2000))
return own
"""
_TAKE_OVER = """
local time = redis.call('TIME')
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], time[1] + time[2] / 1000000 + ARGV[3], ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[3] * 2000))
"""
_RENEW = """
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'XX', time[1] + time[2] / 1000000 + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] * 2000))
"""


@dataclass(frozen=True, slots=True)
class _Lease:
    model: str
    name: str


class ModelSlots:
    """The slots of one process; safe to share between threads."""

    def __init__(self, valkey: Redis, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Create slots over this client. The thread that renews leases starts with the first slot."""
        self._valkey = valkey
        self._lease_seconds = lease_seconds
        self._take: Any = valkey.register_script(_TAKE)
        self._take_over: Any = valkey.register_script(_TAKE_OVER)
        self._renew: Any = valkey.register_script(_RENEW)
        self._taken: dict[UUID, _Lease] = {}
        self._held: InFlight[_Lease] = InFlight(
            {"model-slots": self._renew_held},
            pause_seconds=lease_seconds * RENEW_EVERY_SECONDS / LEASE_SECONDS,
        )

    def try_to_take(self, call_id: UUID, organization_id: UUID, *, model: str, limit: int) -> int | None:
        """Acquire one of a model's `limit` slots for a call.

        Returns None on success, else the number of the model's slots that the organization has. A refusal puts the
        organization into the model's queue. A second attempt with the same `call_id` takes no second slot.
        """
        lease = _Lease(model, f"{organization_id}:{call_id}")
        keys = [_leases(model), f"model:line:{model}", f"model:asked:{model}"]
        values = [str(organization_id), lease.name, limit, ALPHA, self._lease_seconds, WANTED_SECONDS]
        try:
            lease_count = int(self._take(keys=keys, args=values))
        except RedisError:
            # Report success, so that the call proceeds without the limit.
            log.warning("model_slots.unavailable")
            return None
        if lease_count >= 0:
            return lease_count
        self._taken[call_id] = lease
        self._held.add(lease)
        return None

    def stop_renewing(self, call_id: UUID) -> bool:
        """Stop renewing a call's slot. Return whether this process took a slot for the call. Does no I/O."""
        lease = self._taken.get(call_id)
        if lease is None:
            return False
        self._held.discard(lease)
        return True

    def release(self, call_id: UUID) -> None:
        """Release a call's slot, if this process took the slot and no worker has taken it over."""
        lease = self._taken.pop(call_id, None)
        if lease is not None:
            self._drop(lease)

    @contextmanager
    def taken_over(
        self, call_id: UUID, organization_id: UUID, *, model: str, limit: int | None
    ) -> Iterator[None]:
        """Acquire a call's slot from the web process, renew its lease within the block, then release the slot.

        A slot is taken even if the web process's lease has expired or never existed: a running call must count.
        """
        if limit is None:
            yield
            return
        taken = f"{organization_id}:{call_id}"
        lease = _Lease(model, f"{taken}:made")
        try:
            self._take_over(keys=[_leases(model)], args=[taken, lease.name, self._lease_seconds])
        except RedisError:
            log.warning("model_slots.unavailable")
        self._held.add(lease)
        try:
            yield
        finally:
            self._drop(lease)

    def close(self) -> None:
        """Stop the thread that renews leases."""
        self._held.stop(wait=True)

    def _drop(self, lease: _Lease) -> None:
        self._held.discard(lease)
        # Ignore a failure, because a lease that is not deleted expires.
        with suppress(RedisError):
            self._valkey.zrem(_leases(lease.model), lease.name)

    def _renew_held(self, lease_count: Sequence[_Lease]) -> None:
        for lease in lease_count:
            with suppress(RedisError):
                self._renew(keys=[_leases(lease.model)], args=[lease.name, self._lease_seconds])


def _leases(model: str) -> str:
    return f"model:slots:{model}"
