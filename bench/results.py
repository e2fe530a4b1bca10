"""Result files: JSON, written so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any


def check_writable(path: Path) -> None:
    """Make the folder of a result file; raise ValueError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from error
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder")


def save(path: Path, results: dict[str, Any]) -> None:
    """Write to a file next to the target, then put it in the target's place."""
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(_text(results))
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _text(results: dict[str, Any]) -> str:
    """Format as JSON, with lists of numbers on one line."""
    text = json.dumps(results, indent=1, allow_nan=False)
    flat = re.sub(r"\[\s+([-+\d.e,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    return f"{flat}\n"


def load(path: Path, kind: str) -> dict[str, Any]:
    """Read a result file and check that it is one of this kind."""
    try:
        results = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(results, dict) or results.get("kind") != kind:
        raise ValueError(f"{path} is not a result of bench/{kind}.py")
    return results
