"""Fold the case of ASCII letters only, to compare e-mail addresses and repository names."""

from string import ascii_lowercase, ascii_uppercase

# Not `str.casefold`: Unicode folds other letters onto ASCII ones (the Kelvin sign onto `k`), so that two different
# accounts would compare as equal.
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold_ascii(name: str) -> str:
    """Return a name with its ASCII letters in lower case; all other characters stay as they are."""
    return name.translate(_LOWER)
