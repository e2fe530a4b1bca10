"""The version, which everything else takes from here."""

__version__ = "0.1.0"
