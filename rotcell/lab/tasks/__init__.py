"""The tasks, one module each, found by its name.

A module `rotcell.lab.tasks.NAME` has a `TASK` that is a `rotcell.lab.task.Task`.
"""

from __future__ import annotations

import importlib
import pkgutil

from rotcell.lab.errors import SettingsError
from rotcell.lab.task import Task


def names() -> tuple[str, ...]:
    """All tasks."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def find(name: str) -> Task:
    """The task of this name."""
    if name not in names():
        raise SettingsError(f"task must be one of {', '.join(names())}, got {name!r}")
    task: Task = importlib.import_module(f"{__name__}.{name}").TASK
    return task
