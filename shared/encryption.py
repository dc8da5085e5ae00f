"""Encryption at rest of the few secrets we must read back: signing keys, webhook secrets, credentials of networks.

Fernet (AES-128-CBC and HMAC-SHA256): the first key encrypts, all decrypt. To replace a key put the new one behind,
so that every process knows it, then in front; re-encrypt (`reencryption.py`), then drop the old one.
"""

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from shared.config.settings import Settings


class Encryption:
    """The keys of `ENCRYPTION_KEYS`, ready to use."""

    def __init__(self, settings: Settings) -> None:
        """Raise ValueError when a key is not a Fernet key."""
        keys = [Fernet(key.get_secret_value()) for key in settings.encryption_keys]
        self._first = keys[0]
        self._fernet = MultiFernet(keys)

    def encrypt(self, text: str) -> bytes:
        """Encrypt with the first key."""
        return self._fernet.encrypt(text.encode())

    def decrypt(self, token: bytes) -> str:
        """Decrypt with whichever key fits; raise cryptography's InvalidToken when none does."""
        return self._fernet.decrypt(token).decode()

    def is_current(self, token: bytes) -> bool:
        """Tell whether the first key encrypted this."""
        try:
            self._first.decrypt(token)
        except InvalidToken:
            return False
        return True

    def renew(self, token: bytes) -> bytes:
        """Encrypt again with the first key what any of the keys encrypted; raise InvalidToken when none does."""
        return self._fernet.rotate(token)
