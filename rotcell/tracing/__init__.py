"""Look inside a layer: its angles, gates and states at every step.

`trace` runs a layer and keeps what its kernels save for backward; a `Trace` names it, summarizes it
and writes it as a page for a browser.
"""

from .page import PageError, Reading, Selection
from .planes import Plane
from .trace import Direction, Trace, save_side_by_side, trace

__all__ = [
    "Direction",
    "PageError",
    "Plane",
    "Reading",
    "Selection",
    "Trace",
    "save_side_by_side",
    "trace",
]
