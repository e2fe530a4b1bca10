"""Downloads from a server on this machine: whole and checked, or nothing at all."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rotcell.lab.errors import DataError
from rotcell.lab.progress import ProgressBar
from rotcell.lab.tasks.babi.data.download import (
    EN_DIGEST,
    MIRRORS,
    Mirror,
    cache_folder,
    content_digest,
    download,
    shown_progress,
)
from rotcell.lab.tasks.babi.data.generate import write_dataset
from rotcell.lab.tasks.babi.data.reader import questions_of, read_stories

STALLED = threading.Event()  # set when the server stops in the middle of an answer


class Server(ThreadingHTTPServer):
    """Serves bytes by path; a path can claim more bytes than it gives, or stall."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []

    def url(self, path: str, data: bytes | None = None) -> str:
        if data is not None:
            self.files[path] = data
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.requests.append(self.path)
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        claimed = 2 * len(data) if "/short" in self.path or "/stall" in self.path else len(data)
        if "/unsized" not in self.path:
            self.send_header("Content-Length", str(claimed))
        self.end_headers()
        self.wfile.write(data)
        if "/stall" in self.path:
            self.wfile.flush()
            STALLED.set()
            time.sleep(20)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_dataset(folder / "tasks_1-20_v1-2" / "en", questions=3)
    return folder


@pytest.fixture(scope="module")
def good(unpacked: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(unpacked / "tasks_1-20_v1-2", "tasks_1-20_v1-2")
    return buffer.getvalue()


def silent(done: int, total: int | None) -> None:
    """Show nothing."""


def nothing_left(folder: Path) -> bool:
    return not any(folder.iterdir())


def test_a_good_archive_is_unpacked_once(
    server: Server, good: bytes, unpacked: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int | None]] = []
    mirror = Mirror(server.url("/good", good), hashlib.sha256(good).hexdigest())
    target = tmp_path / "deep" / "babi"
    folder = download(
        target,
        mirrors=[mirror],
        digest=content_digest(unpacked),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert folder == target
    assert len(questions_of(read_stories(folder, 20, "test"))) == 3
    assert [path.name for path in target.parent.iterdir()] == ["babi"]
    assert [path.name for path in target.iterdir()] == ["tasks_1-20_v1-2"]
    assert seen[-1] == (len(good), len(good))
    assert seen == sorted(seen)
    download(target, mirrors=[mirror], digest=None, progress=silent)
    assert server.requests == ["/good"]  # the second time nothing was fetched


def test_answer_of_unknown_length(server: Server, good: bytes, tmp_path: Path) -> None:
    mirror = Mirror(server.url("/unsized", good))
    download(tmp_path / "babi", mirrors=[mirror], digest=None, progress=silent)
    assert len(questions_of(read_stories(tmp_path / "babi", 1, "train"))) == 3


def test_the_cache_folder_follows_xdg(
    server: Server, good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mirror = Mirror(server.url("/good", good))
    assert download(mirrors=[mirror], digest=None, progress=silent) == tmp_path / "rotcell" / "babi"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "rotcell" / "babi"


def test_next_mirror_is_tried(server: Server, good: bytes, tmp_path: Path) -> None:
    mirrors = [
        Mirror(server.url("/gone")),
        Mirror(server.url("/short", good)),
        Mirror(server.url("/good", good), "0" * 64),
        Mirror(server.url("/good", good)),
    ]
    download(tmp_path / "babi", mirrors=mirrors, digest=None, progress=silent)
    assert server.requests == ["/gone", "/short", "/good", "/good"]
    assert [path.name for path in tmp_path.iterdir()] == ["babi"]


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def special(kind: bytes, name: str = "en/link", target: str = "../../outside") -> bytes:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return packed((member, b""))


def plain(*names: str) -> bytes:
    return packed(*((tarfile.TarInfo(name), b"x") for name in names))


EVIL = {
    "path up": (plain("../outside"), "outside of it"),
    "path up in the middle": (plain("en/../../outside"), "outside of it"),
    "absolute path": (plain("/tmp/outside"), "outside of it"),
    "windows path": (plain("en\\..\\outside"), "outside of it"),
    "windows drive": (plain("C:/outside"), "outside of it"),
    "symbolic link": (special(tarfile.SYMTYPE), "not a regular file"),
    "hard link": (special(tarfile.LNKTYPE), "not a regular file"),
    "device": (special(tarfile.CHRTYPE), "not a regular file"),
    "pipe": (special(tarfile.FIFOTYPE), "not a regular file"),
    "file twice": (plain("en/a", "en/a"), "twice"),
    "no task files": (plain("README.txt"), "no bAbI task files"),
    "not an archive": (b"<html>404</html>", "damaged"),
    "empty": (b"", "damaged"),
}


@pytest.mark.parametrize(("data", "message"), EVIL.values(), ids=EVIL.keys())
def test_an_archive_cannot_write_elsewhere(
    data: bytes, message: str, server: Server, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(DataError, match=message):
        download(
            home / "babi", mirrors=[Mirror(server.url("/evil", data))], digest="-", progress=silent
        )
    assert nothing_left(home)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


Break = Callable[[Server, bytes], tuple[Mirror, str | None]]
BROKEN: dict[str, tuple[Break, str]] = {
    "connection cut": (lambda s, g: (Mirror(s.url("/short", g)), None), "bytes"),
    "archive cut": (lambda s, g: (Mirror(s.url("/cut", g[: len(g) // 2])), None), "damaged"),
    "wrong checksum": (lambda s, g: (Mirror(s.url("/a", g), "0" * 64), None), "wrong checksum"),
    "other files": (lambda s, g: (Mirror(s.url("/a", g)), EN_DIGEST), "not the published ones"),
    "not found": (lambda s, g: (Mirror(s.url("/gone")), None), "404"),
    "no server": (lambda s, g: (Mirror("http://127.0.0.1:1/"), None), "refused"),
    "local file": (lambda s, g: (Mirror("file:///etc/hostname"), None), "not an http address"),
}


@pytest.mark.parametrize(("make", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_download_is_named_and_leaves_nothing(
    make: Break, message: str, server: Server, good: bytes, tmp_path: Path
) -> None:
    mirror, digest = make(server, good)
    with pytest.raises(DataError, match=message):
        download(tmp_path / "babi", mirrors=[mirror], digest=digest, progress=silent)
    assert nothing_left(tmp_path)


def test_interrupt_leaves_nothing(server: Server, good: bytes, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    mirror = Mirror(server.url("/good", good))
    with pytest.raises(KeyboardInterrupt):
        download(tmp_path / "babi", mirrors=[mirror], digest=None, progress=interrupt)
    assert nothing_left(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="kills with a POSIX signal")
def test_killed_download_leaves_no_target_and_is_swept_up(
    server: Server, good: bytes, tmp_path: Path
) -> None:
    STALLED.clear()
    target = tmp_path / "babi"
    url = server.url("/stall", good)
    script = (
        "import sys; from rotcell.lab.tasks.babi.data.download import Mirror, download; "
        "download(sys.argv[1], mirrors=[Mirror(sys.argv[2])], digest=None)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(target), url],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert STALLED.wait(120)  # a busy machine takes its time to import torch
        (partial,) = tmp_path.iterdir()  # one hidden folder, of the active download
        fast = Mirror(server.url("/good", good))
        other = tmp_path / "other"
        download(other, mirrors=[fast], digest=None, progress=silent)
        assert partial.exists()
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert not target.exists()
    assert partial.exists()
    download(target, mirrors=[fast], digest=None, progress=silent)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["babi", "other"]
    assert len(questions_of(read_stories(target, 1, "train"))) == 3


def test_an_active_download_is_not_cleaned_up(server: Server, good: bytes, tmp_path: Path) -> None:
    mirror = Mirror(server.url("/good", good))
    target = tmp_path / "babi"
    nested: list[Path] = []

    def download_again(done: int, total: int | None) -> None:
        if not nested:
            nested.append(download(target, mirrors=[mirror], digest=None, progress=silent))

    # The inner download finishes first; the outer one finds its place taken by the same data.
    assert download(target, mirrors=[mirror], digest=None, progress=download_again) == target
    assert nested == [target]
    assert [path.name for path in tmp_path.iterdir()] == ["babi"]


def test_foreign_folder_is_not_touched(server: Server, good: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    mirror = Mirror(server.url("/good", good))
    for target in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(DataError, match="not touching"):
            download(target, mirrors=[mirror], digest=None, progress=silent)
    assert server.requests == []
    (tmp_path / "empty").mkdir()
    download(tmp_path / "empty", mirrors=[mirror], digest=None, progress=silent)
    assert len(questions_of(read_stories(tmp_path / "empty", 1, "train"))) == 3


def test_other_task_files_are_not_taken_for_the_official_ones(
    server: Server, good: bytes, tmp_path: Path
) -> None:
    write_dataset(tmp_path / "made", questions=3)
    before = {path: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    mirror = Mirror(server.url("/good", good))
    with pytest.raises(DataError, match="other bAbI files than the official ones; not touching"):
        download(tmp_path / "made", mirrors=[mirror], progress=silent)
    assert {path: path.read_bytes() for path in (tmp_path / "made").iterdir()} == before
    assert server.requests == []


def test_a_log_has_a_line_per_tenth() -> None:
    out = io.StringIO()
    show = shown_progress(ProgressBar(out))
    for done in range(0, 2 << 20, 1 << 18):
        show(done, 2 << 20)
    show(2 << 20, 2 << 20)
    lines = out.getvalue().splitlines()
    assert lines[0] == "bAbI archive: 0.2 MiB of 2.0 MiB"
    assert lines[-1] == "bAbI archive: 2.0 MiB of 2.0 MiB"
    assert len(lines) == 8


def test_digest_is_that_of_the_official_files(real_babi: Path) -> None:
    assert content_digest(real_babi) == EN_DIGEST
    assert all(mirror.url.endswith("tasks_1-20_v1-2.tar.gz") for mirror in MIRRORS)
