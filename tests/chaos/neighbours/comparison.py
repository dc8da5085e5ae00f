"""Compare the victim of a trial alone and beside the crowd."""

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import requests

from tests.chaos.neighbours.measurement import Measurement, measure
from tests.chaos.neighbours.trials import Scene, Trial

SETTLING_SECONDS = 2.0
"""For an attack to take all it can get, and for what it took to be given back."""
RECOVERY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The honest requests of one trial, and the crowd's responses by status."""

    quiet: Measurement
    beside: Measurement
    answers: Counter[str] = field(default_factory=Counter)


def compare(trial: Trial, scene: Scene, seconds: float) -> Comparison:
    """Measure the victim alone for half of the seconds, then beside the crowd for all of them."""
    ask = partial(trial.ask, scene)
    quiet = measure(ask, max(1.0, seconds / 2))
    with trial.attack(scene) as crowd:
        time.sleep(SETTLING_SECONDS)
        beside = measure(ask, seconds)
        answers = crowd.answers if crowd is not None else Counter()
    time.sleep(SETTLING_SECONDS)
    return Comparison(quiet=quiet, beside=beside, answers=answers)


def recovers(trial: Trial, scene: Scene) -> bool:
    """Retry the honest request until the crowd's queued requests are dropped. Return whether it succeeds."""
    give_up_at = time.monotonic() + RECOVERY_SECONDS
    while time.monotonic() < give_up_at:
        try:
            trial.ask(scene)
        except (AssertionError, requests.RequestException):
            time.sleep(0.1)
        else:
            return True
    return False
