"""Examples of README.md and the user guides run, and links between files have a target."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if "_build" not in page.parts]
RUN = ["README.md", "docs/getting-started.md", "docs/guides/reinforcement-learning.md"]
RUN += ["docs/guides/regularization.md", "docs/guides/looking-inside.md"]


@pytest.mark.parametrize("name", RUN)
def test_examples_run(name: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    assert blocks
    code = "\n".join(blocks)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_links_have_a_target(name: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", text):
        assert (ROOT / name).parent.joinpath(link).exists(), f"{name} links to {link}"


def test_the_readme_can_be_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
