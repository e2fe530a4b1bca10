"""Things that rotcell can do without until they are asked for."""


class NotInstalledError(RuntimeError):
    """An optional package that is needed and not there."""
