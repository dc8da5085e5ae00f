"""The catalogue: each mutant is one exact piece of the product's text, its replacement, and the tests that must fail.

A mutant has a name, so that a test that misses it can be discussed. Add a mutant for each repaired defect: it restores
the defect.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "catalogue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One wrong change: `old` occurs exactly once in the file; `tests` are files or single tests."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> str:
        """Apply the change to the file below a root, and return its previous text.

        Raises ValueError if `old` does not occur exactly once.
        """
        path = root / self.file
        was = path.read_text()
        if was.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text stands {was.count(self.old)} times in {self.file}")
        path.write_text(was.replace(self.old, self.new))
        return was


def read_catalogue(only: tuple[str, ...] = ()) -> list[Mutant]:
    """Return all mutants, or those whose name or file begins with one of these words."""
    rows = [
        (path.stem, row)
        for path in sorted(FOLDER.glob("*.toml"))
        for row in tomllib.loads(path.read_text())["mutants"]
    ]
    mutants = [
        Mutant(
            name=f"{domain}.{row['name']}",
            file=row["file"],
            old=row["old"],
            new=row["new"],
            tests=tuple(row["tests"]),
        )
        for domain, row in rows
    ]
    return [at for at in mutants if not only or at.name.startswith(only) or at.file.startswith(only)]
