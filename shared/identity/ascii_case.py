"""Fold the case of ASCII letters only, to compare e-mail addresses and repository names."""

from string import ascii_lowercase, ascii_uppercase

# Do not use `str.casefold`: it folds other letters to ASCII letters (the Kelvin sign to `k`), so that two different
# accounts would compare as equal.
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold_ascii(name: str) -> str:
    """Return a name with its ASCII letters in lower case. All other characters are unchanged."""
    return name.translate(_LOWER)
