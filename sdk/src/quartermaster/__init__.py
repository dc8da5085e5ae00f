"""Files, models and agents of a Quartermaster service: `Client` for threads, `AsyncClient` for tasks."""

from quartermaster import context
from quartermaster._async.client import AsyncClient
from quartermaster._sync.client import Client
from quartermaster.errors import ApiError, ConnectionFailed, QuartermasterError

__all__ = ["ApiError", "AsyncClient", "Client", "ConnectionFailed", "QuartermasterError", "context"]
