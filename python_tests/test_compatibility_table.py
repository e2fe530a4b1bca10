"""The README's table of what works in other programs names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_row_names_a_test_that_exists() -> None:
    readme = (HERE.parent / "README.md").read_text()
    section = readme.split("\n## Compatibility\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    rows = [row for row in rows if not row.startswith("| **")]
    assert len(rows) > 30
    for row in rows:
        tests = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row.rsplit("|", 2)[1])
        assert tests, f"no test in the row {row}"
        for file, name in tests:
            text = (HERE / file).read_text()
            assert not name or f"def {name}(" in text, f"{file} has no {name}: {row}"
