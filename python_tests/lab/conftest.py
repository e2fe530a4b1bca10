"""What the bAbI tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_NEXT_TO_REPOSITORY = _REPOSITORY.parent / "shared" / "babi" / "tasks_1-20_v1-2"


@pytest.fixture(scope="session")
def real_babi() -> Path:
    """The official data, which is not part of the repository."""
    configured = os.environ.get("ROTCELL_BABI")
    path = Path(configured) if configured else _NEXT_TO_REPOSITORY
    if not path.exists():
        pytest.skip(f"the official bAbI data is not at {path} (set ROTCELL_BABI to where it is)")
    return path
