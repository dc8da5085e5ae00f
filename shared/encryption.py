"""Encryption at rest of the few secrets that are read back: signing keys, webhook secrets, networks' credentials.

Fernet (AES-128-CBC with HMAC-SHA256): the first key encrypts, all keys decrypt. To replace a key, append the new one
so that every process knows it, then move it to the front, re-encrypt (`reencryption.py`), and remove the old one.
"""

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from shared.config.settings import Settings


class Encryption:
    """The keys of `ENCRYPTION_KEYS`."""

    def __init__(self, settings: Settings) -> None:
        """Load the keys. Raises ValueError if one is not a Fernet key."""
        keys = [Fernet(key.get_secret_value()) for key in settings.encryption_keys]
        # Kept apart for `is_current`: MultiFernet does not tell which key decrypted.
        self._first = keys[0]
        self._fernet = MultiFernet(keys)

    def encrypt(self, text: str) -> bytes:
        """Encrypt a text with the first key."""
        return self._fernet.encrypt(text.encode())

    def decrypt(self, token: bytes) -> str:
        """Decrypt with the key that fits. Raises cryptography's InvalidToken if none does."""
        return self._fernet.decrypt(token).decode()

    def is_current(self, token: bytes) -> bool:
        """Return whether the first key encrypted this token."""
        try:
            self._first.decrypt(token)
        except InvalidToken:
            return False
        return True

    def renew(self, token: bytes) -> bytes:
        """Re-encrypt a token with the first key. Raises InvalidToken if no key decrypts it."""
        return self._fernet.rotate(token)
