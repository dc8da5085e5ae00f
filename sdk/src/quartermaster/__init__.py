"""Access files, models and agents of a Quartermaster service: `Client` is for threads, `AsyncClient` for asyncio."""

from quartermaster import context
from quartermaster._async.client import AsyncClient
from quartermaster._sync.client import Client
from quartermaster.errors import ApiError, ConnectionFailed, QuartermasterError

__all__ = ["ApiError", "AsyncClient", "Client", "ConnectionFailed", "QuartermasterError", "context"]
