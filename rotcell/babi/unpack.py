"""Unpacks an archive that is not trusted: files and folders, and only where they belong."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Final

from rotcell.babi.stories import DataError

MOST_BYTES: Final = 1 << 30  # the official archive unpacks to about a tenth of this


def unpack(archive: Path, target: Path) -> None:
    """Unpack folders and regular files, and refuse anything that could land elsewhere."""
    target.mkdir()
    room = MOST_BYTES
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                place = target.joinpath(*_safe_parts(member.name))
                if member.isdir():
                    place.mkdir(parents=True, exist_ok=True)
                    continue
                content = members.extractfile(member) if member.isreg() else None
                if content is None:
                    raise DataError(f"{member.name!r} in the archive is not a regular file")
                room -= member.size
                if room < 0:
                    raise DataError("the archive unpacks to far more than the data")
                place.parent.mkdir(parents=True, exist_ok=True)
                _save(content, place, member.name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"the archive is damaged: {error}") from error


def _save(content: IO[bytes], place: Path, name: str) -> None:
    try:
        with place.open("xb") as out:
            shutil.copyfileobj(content, out)
    except FileExistsError:
        raise DataError(f"{name!r} is in the archive twice") from None


def _safe_parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise DataError(f"{name!r} in the archive points outside of it")
    return path.parts
