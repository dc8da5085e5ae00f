"""Compare names in which the case of letters of ASCII does not count, and everything else does.

Unicode folds other letters onto those of ASCII, as the Kelvin sign onto `k`: by it, who has such a name would be taken
for somebody else.
"""

from string import ascii_lowercase, ascii_uppercase

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold_ascii(name: str) -> str:
    """Give what a name has in common with those that are the same."""
    return name.translate(_LOWER)
