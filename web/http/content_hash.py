"""The SHA-256 of content as it arrives, computed in a second thread if the content is long.

Hashing a gigabyte takes half a second of one core, as long as receiving it. With a second thread, long
uploads are nearly twice as fast. For short content, starting a thread costs more than it saves.
"""

from hashlib import sha256
from queue import SimpleQueue
from threading import Semaphore, Thread

# Below this size, starting a thread costs more than it saves.
INLINE_BYTES = 1 << 20
# Limits how many pieces are received but not hashed yet: each of them occupies a buffer.
OUTSTANDING_PIECES = 4


class ContentHash:
    """A running SHA-256. Call `digest`, or `close` after an error: either call ends the thread."""

    def __init__(self) -> None:
        self._hash = sha256()
        self._inline_bytes = 0
        self._pieces: SimpleQueue[memoryview | None] = SimpleQueue()
        self._room = Semaphore(OUTSTANDING_PIECES)
        self._thread: Thread | None = None

    def update(self, piece: memoryview) -> None:
        """Add a piece.

        The bytes of the piece must not change until OUTSTANDING_PIECES further pieces have been added.
        """
        if self._thread is None and self._inline_bytes + len(piece) <= INLINE_BYTES:
            self._inline_bytes += len(piece)
            self._hash.update(piece)
            return
        if self._thread is None:
            self._thread = Thread(target=self._work, name="content-hash", daemon=True)
            self._thread.start()
        # Block the receiving thread if hashing falls behind, so that it does not overwrite a buffer before it
        # is hashed.
        self._room.acquire()
        self._pieces.put(piece)

    def digest(self) -> bytes:
        """Wait until everything is hashed. Return the digest."""
        self.close()
        return self._hash.digest()

    def close(self) -> None:
        """End the hashing thread, if it was started."""
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._hash.update(piece)
            # Release the view before the semaphore: after the semaphore, the receiver may fill the buffer
            # again.
            del piece
            self._room.release()
