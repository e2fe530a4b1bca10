"""Files that are there whole or not at all, and work that only one process does."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path`; readers find the old file or the new one, also after a kill."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with unfinished.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


#: The name that sweeps share while they append records.
SWEEPING: Final = "sweeping"


class Claims:
    """Names that one process has to itself, among all that use the same file.

    A name is a byte range lock on the file, which the system lets go of when the process ends,
    however it ends. So nothing is left behind that a later process would have to doubt.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")

    def __enter__(self) -> Claims:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def take(self, name: str) -> bool:
        """Claim a name; False when another process has it."""
        return self._lock(name, wait=False)

    def share(self, name: str) -> bool:
        """Claim a name together with others that share it; False when it is taken."""
        return self._lock(name, wait=False, shared=True)

    def release(self, name: str) -> None:
        """Give a name back."""
        if sys.platform != "win32":
            import fcntl

            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _offset(name))

    @contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Wait for a name, and have it for a while."""
        self._lock(name, wait=True)
        try:
            yield
        finally:
            self.release(name)

    def _lock(self, name: str, *, wait: bool, shared: bool = False) -> bool:
        if sys.platform == "win32":
            return True  # there are no such locks: it is up to the user not to start two sweeps
        import fcntl

        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.lockf(self._file, kind | (0 if wait else fcntl.LOCK_NB), 1, _offset(name))
        except (BlockingIOError, PermissionError):
            return False
        return True


def _offset(name: str) -> int:
    """The byte to lock for a name; the file itself stays empty."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")
