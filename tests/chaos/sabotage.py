"""The service's processes with rules broken, to prove that the comparison at the end notices.

`python -m tests.chaos.sabotage MODE,… MODULE ARGUMENTS…` breaks the rules, then becomes the module, as `python -m`
would. The suite runs some modes (`test_sabotage.py`); each of the others must fail by hand, as `python -m tests.chaos
--strikes --seconds 10 --only media --sabotage store-again` must.
"""

import runpy
import sys
from collections.abc import Callable, Sequence

from tests.chaos.agents.sabotage import forget_updates, ignore_keys
from tests.chaos.budgets.sabotage import count_more, forget_changes, hold_nothing, leak_holds
from tests.chaos.console.sabotage import (
    forget_keys,
    keep_sessions,
    remember_sessions,
    reuse_links,
    trust_old_proofs,
)
from tests.chaos.files.sabotage import (
    discard_the_unheard,
    go_by_own_clock,
    ignore_staging_lock,
    rows_before_unlink,
    serve_the_ended,
    sweep_without_asking,
)
from tests.chaos.media.sabotage import forget_events, rename_events, store_again
from tests.chaos.models.sabotage import (
    charge_again,
    charge_each_attempt,
    drop_charges,
    give_calls_again,
    repeat_consumed_calls,
)

MODES: dict[str, Callable[[], None]] = {
    break_rule.__name__.replace("_", "-"): break_rule
    for break_rule in (
        rows_before_unlink,
        sweep_without_asking,
        ignore_staging_lock,
        serve_the_ended,
        discard_the_unheard,
        go_by_own_clock,
        drop_charges,
        charge_again,
        charge_each_attempt,
        give_calls_again,
        repeat_consumed_calls,
        hold_nothing,
        count_more,
        leak_holds,
        forget_changes,
        store_again,
        forget_events,
        rename_events,
        ignore_keys,
        forget_updates,
        reuse_links,
        keep_sessions,
        remember_sessions,
        trust_old_proofs,
        forget_keys,
    )
}


def sabotaged(command: Sequence[str], modes: Sequence[str]) -> list[str]:
    """Give the command of a Python module with rules broken."""
    at = command.index("-m")
    return [*command[:at], "-m", __name__, ",".join(modes), *command[at + 1 :]]


def main() -> None:
    """Break the rules and become the module."""
    _, modes, module, *arguments = sys.argv
    for mode in modes.split(","):
        MODES[mode]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
