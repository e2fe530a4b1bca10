"""Output into `head` and the like, which stop reading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

GENERATE = ["rotcell.lab", "data", "--tasks", "1", "--questions", "5", "--generate"]


@pytest.mark.parametrize("command", [["rotcell"], GENERATE], ids=str)
@pytest.mark.parametrize("buffered", [True, False])
def test_a_closed_pipe_ends_the_command_silently(
    command: list[str], buffered: bool, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    target = [str(tmp_path / "data")] if command is GENERATE else []
    done = subprocess.run(
        [sys.executable, *([] if buffered else ["-u"]), "-m", *command, *target],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE
