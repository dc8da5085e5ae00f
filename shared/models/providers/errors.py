"""What goes wrong between us and a provider, and whether it may have cost something.

    ProviderError               502   broke off, answered nonsense, refused our credentials …
    ├── ProviderTimeout         504   too slow: to begin, within the answer, or in all
    ├── ProviderOverloaded      503   has no room at the moment; comes with a time to wait
    ├── UpstreamRefused         400   found the request itself wrong; its error is passed on
    └── CallCancelled                 we hung up, because nobody waits for the answer any more

Protects two rules: a call that may have cost something is never repeated (`may_have_cost`), and no text of an
upstream reaches a log: `str()` of these errors is a sentence of ours.
"""

from typing import Any, ClassVar

from shared.errors import DomainError, Kind


class ProviderError(DomainError):
    """The provider of this model failed to answer."""

    code: ClassVar[str] = "provider_error"
    kind: ClassVar[Kind] = Kind.UPSTREAM_FAILED

    def __init__(
        self,
        detail: str | None = None,
        *,
        may_have_cost: bool,
        is_worth_repeating: bool = False,
        retry_after_seconds: int | None = None,
        upstream_status: int | None = None,
    ) -> None:
        """Say whether the provider may have begun to work, and whether asking it again soon could help.

        The code that chose the provider puts its name into `provider`.
        """
        super().__init__(detail, retry_after_seconds=retry_after_seconds)
        self.may_have_cost = may_have_cost
        self.provider: str | None = None
        self.is_worth_repeating = is_worth_repeating and not may_have_cost
        self.upstream_status = upstream_status


class ProviderTimeout(ProviderError):
    """The provider of this model took too long to answer."""

    code = "provider_timeout"
    kind = Kind.UPSTREAM_TIMED_OUT


class ProviderOverloaded(ProviderError):
    """The provider of this model takes no more calls at the moment; try again."""

    code = "overloaded"
    kind = Kind.UNAVAILABLE

    def __init__(
        self,
        detail: str | None = None,
        *,
        retry_after_seconds: int | None = None,
        upstream_status: int | None = None,
    ) -> None:
        """Ask for a retry after a second unless told otherwise; an overloaded provider has done nothing."""
        super().__init__(
            detail,
            may_have_cost=False,
            is_worth_repeating=True,
            retry_after_seconds=1 if retry_after_seconds is None else retry_after_seconds,
            upstream_status=upstream_status,
        )


class UpstreamRefused(ProviderError):
    """The provider of this model refused the request as it stands.

    `status` is 400, 413 or 422; `error` has the upstream's own `message`, `type`, `param` and `code`, bounded, for
    the caller's eyes only.
    """

    code = "upstream_refused"
    kind = Kind.MALFORMED

    def __init__(self, *, status: int, error: dict[str, Any]) -> None:
        super().__init__(may_have_cost=False, upstream_status=status)
        self.status = status
        self.error = error


class CallCancelled(ProviderError):
    """The call was cancelled."""

    code = "cancelled"
