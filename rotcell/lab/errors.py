"""What can go wrong that a user can do something about; the command line prints it as one line."""

from __future__ import annotations


class DataError(ValueError):
    """Data that is missing, damaged or mislabeled."""


class SettingsError(ValueError):
    """Settings that are invalid or differ from those of a file."""


class TrainingError(RuntimeError):
    """Training that cannot continue."""


class CheckpointError(ValueError):
    """A file that is no checkpoint, is damaged, or belongs to another run."""


class ResultError(ValueError):
    """A file that is no result, or is damaged."""


class LookError(ValueError):
    """There is nothing to look at."""


class NotInstalledError(RuntimeError):
    """An optional package that is needed and not there."""


EXPECTED = (
    CheckpointError,
    DataError,
    LookError,
    NotInstalledError,
    OSError,
    ResultError,
    SettingsError,
    TrainingError,
)
