"""Fetches the official archive into the user's cache: whole and checked, or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, TextIO

from rotcell.lab.errors import DataError
from rotcell.lab.progress import ProgressBar
from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS, SPLITS
from rotcell.lab.tasks.babi.data.reader import open_data

Progress = Callable[[int, "int | None"], None]  # bytes so far, bytes in all where known


@dataclass(frozen=True)
class Mirror:
    """An address of the archive, with the checksum of the file there where it is known."""

    url: str
    sha256: str | None = None


MIRRORS: Final = (
    Mirror(
        "http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz",
        "0364ebde659f14d11bc21744516c5ec49d3d06cb692733f66680771244998898",
    ),
    Mirror("https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz"),
)
# The 40 published files of en/, whatever archive they came in: see `content_digest`.
EN_DIGEST: Final = "e30b690819df670b5cb7708a5cd3d752560acf62a7a6d3ed3c58ac748f3cbc34"

MOST_BYTES: Final = 1 << 30  # the archive unpacks to about a tenth of this

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30
_LOCK = ".lock"


def cache_folder() -> Path:
    """Where downloads are kept: rotcell/babi in the user's cache folder (XDG)."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "rotcell" / "babi"


def download(
    target: str | os.PathLike[str] | None = None,
    *,
    mirrors: Sequence[Mirror] = MIRRORS,
    digest: str | None = EN_DIGEST,
    progress: Progress | None = None,
) -> Path:
    """Download and unpack the archive into `target`, by default the cache; returns the folder.

    A folder that has the data already is returned at once. The mirrors are tried in turn.
    Everything happens in a hidden folder next to the target, which takes the target's name as the
    last step, so that an interrupted download leaves no target.
    """
    folder = cache_folder() if target is None else Path(target)
    if folder.exists() and _has_data(folder, digest):
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "other bAbI files than the official ones" if _has_data(folder) else "no bAbI data"
        raise DataError(f"{folder} exists but holds {what}; not touching it")
    failures = []
    folder.parent.mkdir(parents=True, exist_ok=True)
    for mirror in mirrors:
        with _partial_folder(folder) as partial:
            try:
                _fetch_and_unpack(mirror, partial, digest, progress or shown_progress())
            except (DataError, OSError, http.client.HTTPException) as error:
                failures.append(f"{mirror.url}: {error}")
                continue
            _rename(partial / "data", folder, digest)
            return folder
    raise DataError("could not download the bAbI data:\n  " + "\n  ".join(failures))


def downloaded() -> Path | None:
    """Where the official files were downloaded to, if they were."""
    folder = cache_folder()
    return folder if folder.exists() and _has_data(folder, EN_DIGEST) else None


def _has_data(folder: Path, digest: str | None = None) -> bool:
    """Whether a folder has task files, and those of a digest if there is one."""
    try:
        files = open_data(folder)
        return bool(files) and (digest is None or content_digest(folder) == digest)
    except DataError:
        return False


def _rename(finished: Path, folder: Path, digest: str | None) -> None:
    try:
        finished.replace(folder)
    except OSError:
        if not _has_data(folder, digest):  # another download may have been faster
            raise


def _fetch_and_unpack(
    mirror: Mirror, partial: Path, digest: str | None, progress: Progress
) -> None:
    archive = partial / "archive.tar.gz"
    found = _fetch(mirror.url, archive, progress)
    if mirror.sha256 is not None and found != mirror.sha256:
        raise DataError(f"wrong checksum: sha256 is {found}, not {mirror.sha256}")
    unpacked = partial / "data"
    unpack(archive, unpacked)
    if digest is not None and content_digest(unpacked) != digest:
        raise DataError("the task files are not the published ones (their checksums differ)")


def _fetch(url: str, target: Path, progress: Progress) -> str:
    """Save what is at `url`; returns its sha256."""
    if not url.startswith(("http://", "https://")):
        raise DataError("not an http address")
    checksum = hashlib.sha256()
    done = 0
    with (
        urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response,
        target.open("wb") as out,
    ):
        length = response.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdigit() else None
        while chunk := response.read(_CHUNK):
            out.write(chunk)
            checksum.update(chunk)
            done += len(chunk)
            if done > MOST_BYTES:
                raise DataError("the answer is far larger than the archive")
            progress(done, total)
    if total is not None and done != total:
        raise DataError(f"the connection ended after {done} of {total} bytes")
    return checksum.hexdigest()


def content_digest(folder: Path) -> str:
    """One checksum for the 40 files of en/: sha256 of their sorted `sha256  name` lines."""
    files = open_data(folder, size="1k")
    lines = []
    for task in ALL_TASKS:
        for split in SPLITS:
            data, source = files.read(task, split)
            lines.append((Path(source).name, hashlib.sha256(data).hexdigest()))
    text = "".join(f"{checksum}  {name}\n" for name, checksum in sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest()


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


@contextmanager
def _partial_folder(folder: Path) -> Iterator[Path]:
    """A hidden folder next to `folder`, gone afterwards; those of killed downloads go too."""
    prefix = f".{folder.name}.partial-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        if _is_abandoned(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        unnoticed = partial / "new"
        with unnoticed.open("w") as lock:
            _try_lock(lock)
            unnoticed.rename(partial / _LOCK)  # other processes find it locked
            yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_abandoned(partial: Path) -> bool:
    try:
        with (partial / _LOCK).open("r+") as lock:
            return _try_lock(lock)
    except OSError:
        return False  # just made, or just gone


def _try_lock(file: TextIO) -> bool:
    """Lock a file until it is closed or its process dies; False when another one has it."""
    if sys.platform == "win32":
        return False  # leftovers stay where files cannot be locked this way
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def shown_progress(bar: ProgressBar | None = None) -> Progress:
    """Shows how far a download is; where there is no terminal, a line per tenth."""
    bar = bar or ProgressBar()
    tenths = 0

    def show(done: int, total: int | None) -> None:
        nonlocal tenths
        amount = f"bAbI archive: {done / 2**20:.1f} MiB"
        if not total:
            bar.show(0.0, amount)
            return
        text = f"{amount} of {total / 2**20:.1f} MiB"
        bar.show(done / total, text)
        if done == total or (not bar.live and 10 * done // total > tenths):
            tenths = 10 * done // total
            bar.note(text)

    return show
