"""What results say they were computed with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch

from rotcell.lab.training import environment as module
from rotcell.lab.training.environment import environment


def test_everything_that_may_explain_a_difference() -> None:
    torch.set_num_threads(1)
    found = environment()
    assert found["threads"] == 1
    assert found["torch"] == torch.__version__
    assert set(found) == {
        "rotcell",
        "commit",
        "torch",
        "python",
        "machine",
        "instruction_set",
        "torch_instruction_set",
        "threads",
    }
    assert json.loads(json.dumps(found)) == found


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_commit_of_a_clone_of_a_build_and_of_neither(tmp_path: Path) -> None:
    package = tmp_path / "rotcell"
    package.mkdir()
    (package / "code.py").write_text("1\n")
    assert module._of_clone(package) is None
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert module._of_clone(package) == head
    (package / "code.py").write_text("2\n")
    assert module._of_clone(package) == f"{head}+changes"
    # An environment inside of some clone: its packages are not that clone's.
    inside = tmp_path / ".venv" / "site-packages" / "rotcell"
    inside.mkdir(parents=True)
    assert module._of_clone(inside) is None
    assert module._of_build(package) is None
    (package / "_build.json").write_text(json.dumps({"commit": "c" * 40}))
    assert module._of_build(package) == "c" * 40


def test_commit_that_pip_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        def __init__(self, text: str | None) -> None:
            self.text = text

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.text

    noted = json.dumps({"url": "https://example.org", "vcs_info": {"commit_id": "d" * 40}})
    for text, expected in ((noted, "d" * 40), (None, None), ("{}", None)):
        monkeypatch.setattr(module.metadata, "distribution", lambda _, t=text: Distribution(t))
        assert module._of_pip() == expected
