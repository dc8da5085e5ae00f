"""Chaos test: run the whole service under load, kill processes and servers at random, and count what was lost.

`python -m tests.chaos --seconds 30` starts the service (`run`), client threads that remember every acknowledgement
(`files`, `models`, `media`, `agents`: each has a `workload`), and a monkey (`monkey`, `faults`) that kills processes,
moves clocks, and breaks servers, disks, links and messages (`strikes`). At the end everything restarts and simulated
time passes until no work is pending. Then each workload compares what was acknowledged with the stored state,
`tests.support.data.inventory` compares rows with bytes, and `ledger_check` reconciles all credits.

`--sabotage` breaks rules inside the service's own processes (`sabotage`), to verify that the comparison detects it.
Some broken rules show only under one kind of strike, which `--strikes` selects; others show without any.
"""
