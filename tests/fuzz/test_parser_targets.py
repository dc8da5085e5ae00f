"""Each parser keeps its rules for valid input, and for every prefix of it."""

import pytest

from tests.fuzz.parser_targets import SEEDS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_takes_its_seeds_whole_and_cut_off_anywhere(name: str) -> None:
    assert SEEDS[name]
    for seed in SEEDS[name]:
        for end in range(len(seed) + 1):
            TARGETS[name](seed[:end])
