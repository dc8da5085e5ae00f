"""Chaos: clients that remember every acknowledgement, while everything they rely on is killed at random.

`python -m tests.chaos --seconds 30` runs the whole service, its clients (`clients`) and a monkey (`monkey`); at the
end all is restarted and settled, and what was acknowledged is compared with what is there (`oracle`, and
`tests.support.inventory` for rows and bytes). With `--sabotage` the service's own processes run with one rule broken
(`sabotage`), to prove that the comparison would notice.
"""
