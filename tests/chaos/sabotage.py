"""Start the service's processes with broken rules, to verify that the comparison at the end detects it.

`python -m tests.chaos.sabotage MODE,… MODULE ARGUMENTS…` breaks the rules, then runs the module as `python -m` does.
The suite runs some modes (`test_sabotage.py`). Each other mode must fail when run by hand, such as `python -m
tests.chaos --strikes --seconds 10 --only media --sabotage store-again`.
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
    """Return a Python module's command, changed so that rules are broken in its process."""
    at = command.index("-m")
    return [*command[:at], "-m", __name__, ",".join(modes), *command[at + 1 :]]


def main() -> None:
    """Break the rules, then run the module in this process."""
    _, modes, module, *arguments = sys.argv
    for mode in modes.split(","):
        MODES[mode]()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
