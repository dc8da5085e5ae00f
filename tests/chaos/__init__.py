"""Chaos: clients that remember every acknowledgement, while everything they rely on is killed at random.

`python -m tests.chaos --seconds 30` runs the whole service (`run`), several kinds of work in it (`files`, `models`,
`media`, `agents`, each a `workload` with clients of its own) and a monkey (`monkey`, `faults`), which strikes at
processes and their clocks, at servers, disks, links and messages (`…_strikes`). At the end all is restarted and time
passes until nothing waits any more (`settling`); then what was acknowledged is compared with what is there: by each
workload, by `tests.support.data.inventory` for rows and bytes, and by `ledger` for everybody's credits.

With `--sabotage` the service's own processes run with rules broken (`sabotage`), to prove that the comparison notices:
some need one kind of strikes for it, which `--strikes` chooses, others none at all.
"""
