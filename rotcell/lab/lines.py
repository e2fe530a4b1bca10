"""Files with one record per line: NAME.jsonl, to which sweeps append, and published NAME.jsonl.gz.

`rotcell-lab publish` moves records from the first to the second.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Final

from rotcell.lab.errors import ResultError
from rotcell.lab.files import write_atomically

PLAIN: Final = ".jsonl"
COMPRESSED: Final = ".jsonl.gz"


def is_lines(path: Path) -> bool:
    """Whether this is the name of such a file."""
    return path.name.endswith((PLAIN, COMPRESSED))


def stem(path: Path) -> str:
    """The file's name without its suffix."""
    return path.name.removesuffix(".gz").removesuffix(PLAIN)


def both(path: Path) -> tuple[Path, Path]:
    """The compressed and the plain file of the same name in the same folder."""
    name = stem(path)
    return path.with_name(f"{name}{COMPRESSED}"), path.with_name(f"{name}{PLAIN}")


def read(path: Path) -> bytes:
    """The content of either file, uncompressed; ResultError if it cannot be uncompressed."""
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise ResultError(f"{path}: not a whole gzip file: {error}") from None


def write(path: Path, content: bytes) -> None:
    """Write either file, atomically; the same content always gives the same bytes."""
    if path.suffix == ".gz":
        content = gzip.compress(content, compresslevel=9, mtime=0)
    write_atomically(path, content)
