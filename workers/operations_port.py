"""The operations port of a worker and of beat."""

from collections.abc import Callable, Mapping

from shared.observability.multiprocess_metrics import HostMetrics
from shared.observability.telemetry import get_logger
from shared.operations.health_checks import Check, HealthChecks
from shared.operations.operations_port import OperationsPort, listen_for_operators

log = get_logger(__name__)


def answer_operators(
    checks: Mapping[str, Check], metrics: HostMetrics, *, is_draining: Callable[[], bool] = lambda: False
) -> None:
    """Serve health, readiness and metrics until this process ends. The checks decide the readiness.

    If another process of the host has the address, this process runs without the operations port.
    """
    try:
        listener = listen_for_operators()
    except OSError as error:
        log.warning("operations_port.not_opened", error=str(error))
        return
    if listener is not None:
        OperationsPort(HealthChecks(checks, metrics)).serve(listener, is_draining=is_draining)
