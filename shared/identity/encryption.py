"""Encrypt the few secrets we must be able to read back: signing keys and webhook secrets.

Fernet (AES-128-CBC and HMAC-SHA256) with several keys: the first encrypts, all decrypt, so that a key is replaced by
putting the new one in front, re-encrypting at leisure, and then dropping the old one.
"""

from __future__ import annotations

from cryptography.fernet import Fernet, MultiFernet

from shared.settings import Settings


class Encryption:
    """The keys of `ENCRYPTION_KEYS`, ready to use."""

    def __init__(self, settings: Settings) -> None:
        """Read the keys; raise ValueError when one is not a Fernet key."""
        self._fernet = MultiFernet([Fernet(key.get_secret_value()) for key in settings.encryption_keys])

    def encrypt(self, text: str) -> bytes:
        """Encrypt with the first key."""
        return self._fernet.encrypt(text.encode())

    def decrypt(self, token: bytes) -> str:
        """Decrypt with whichever key fits; raise cryptography's InvalidToken when none does."""
        return self._fernet.decrypt(token).decode()

    def renew(self, token: bytes) -> bytes:
        """Encrypt again with the first key what any of the keys encrypted."""
        return self._fernet.rotate(token)
