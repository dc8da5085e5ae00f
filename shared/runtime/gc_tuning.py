"""How often Python looks for reference cycles in processes that answer requests.

Its defaults go over everything imported every few requests, which took a tenth of the processor and delayed requests.
"""

import gc

ALLOCATIONS = 20_000
"""Containers that may be made, beyond those that went by themselves, before the young ones are looked at."""


def pause_while_loading() -> None:
    """Look for no cycles until `freeze_loaded_objects`: nearly all that is imported stays; a sixth of the cost."""
    gc.disable()


def freeze_loaded_objects() -> None:
    """Never look again at what is there now; call it once all is imported and before requests are answered."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, 10, 10)
