"""Figures as small files."""

from __future__ import annotations

import io
from typing import Any

#: Enough for lines, bands and text; a PNG of lines with all their shades is three times as large.
_COLORS = 64


def png(figure: Any) -> bytes:
    """A matplotlib figure as PNG with a palette; the same figure gives the same bytes."""
    from PIL import Image  # comes with matplotlib

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=150)
    with Image.open(drawn) as picture:
        picture.convert("RGB").quantize(_COLORS).save(small, format="png", optimize=True)
    return small.getvalue()
