"""Providers behind a configured proxy."""

from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import events_of, model, text_of
from tests.support.models.upstreams import FakeUpstream


def test_calls_go_through_the_configured_proxy(router: Router, upstream: FakeUpstream) -> None:
    address = upstream.base_url.removesuffix("/v1")  # takes any request, so also one for another host
    entry = model("http://elsewhere.invalid/v1", provider_keys=f'proxy = "{address}"')
    assert text_of(events_of(router, entry)) == "token token token "
    assert upstream.received[0].path == "http://elsewhere.invalid/v1/chat/completions"
