"""The comparison at the end of chaos detects broken rules: with each rule broken it reports the effect, and fails."""

import os
from collections.abc import Mapping, Sequence

import pytest

from tests.support.processes import process_forks

pytestmark = pytest.mark.skipif("SABOTAGE" not in os.environ, reason="make test-chaos takes minutes")

FILES = {
    # Expired content is read last: either its bytes still arrive, or they are missing because they were removed.
    "serve-the-ended": ("was served after its end", '"code": "blob_missing"'),
    "drop-charges": ("was answered as",),
    "store-again": ("imported media that no import made, or more than one",),
}
BUDGETS = {
    "hold-nothing": ("exceeded: ", "refused, and it costs ", "a call that its budget of nothing covers"),
    "reuse-links": ("a link was used again",),
    "trust-old-proofs": ("asked to prove who one is: False",),
}
STRUCK = {
    # These rules break only under wrong clocks, duplicated messages and lost responses, in this order.
    "go-by-own-clock": ("was served after its end", '"code": "blob_missing"', '"code": "file_expired"'),
    "give-calls-again": ("called again though it may have cost something",),
    "charge-each-attempt": ("a charge without a record",),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("workloads", "strikes", "enough", "broken"),
    [
        (("files", "models", "media"), (), ("delete=3", "completed=8", "attachment=20"), FILES),
        (("budgets", "console"), (), ("budget change=20", "sign-in=20", "proof aged=5"), BUDGETS),
        (
            ("files", "models"),
            ("clocks", "messages", "answers"),
            ("clock set=16", "call doubled=3", "call sent again=5", "answers of postgres lost=6"),
            STRUCK,
        ),
    ],
    ids=["files", "budgets", "struck"],
)
def test_chaos_detects_every_broken_rule(
    workloads: Sequence[str],
    strikes: Sequence[str],
    enough: Sequence[str],
    broken: Mapping[str, Sequence[str]],
) -> None:
    """Nine of ten charges, imports and holds fail, so that a run detects it also if it has few of them."""
    arguments = ["--strikes", *strikes, "--seconds", "60", "--until", *enough, "--only", *workloads]
    status, said = process_forks.run("tests.chaos", *arguments, "--sabotage", *broken, seconds=220)
    assert status == 1, said
    for rule, signs in broken.items():
        assert any(sign in said for sign in signs), f"{rule} is not noticed: {said}"


@pytest.mark.timeout(240)
def test_neighbour_trials_fail_when_shares_are_switched_off() -> None:
    arguments = ["--unfair", "--seconds", "1", "--timeout-seconds", "3", "--only", "uploads", "turns"]
    status, said = process_forks.run("tests.chaos.neighbours", *arguments, seconds=220)
    assert status == 1, said
    for pool in ("uploads", "turns"):
        assert f"{pool}: alone" in said, said
    assert said.count(" failed, as: ") == 2, said
