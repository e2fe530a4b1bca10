"""A trace as one HTML file: picks what is shown, encodes it, fills in the template.

What the page does with it is in page.html, page.css and page.js.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from .planes import Plane, planes_of
from .summary import turn

if TYPE_CHECKING:
    from .trace import Direction, Trace

#: No page is larger, in bytes.
LARGEST_PAGE: Final = 5_000_000
#: Rows of the batch that are shown by default, as far as they fit.
_ROWS: Final = 8
_BYTES_PER_NUMBER: Final = 16 / 3  # a float32 in base64
_FRAME_HEIGHT: Final = 860


class PageError(ValueError):
    """What a page cannot be made of."""


@dataclass(frozen=True)
class Selection:
    """What of a trace is shown; None means all that fits."""

    rows: Sequence[int] | None = None  #: of the batch
    directions: Sequence[str] | None = None  #: ``l0``, ``l0_reverse``, ...
    #: Groups of units that are rotated, pairs mostly; left to choose, those that turn most.
    groups: Sequence[int] | None = None
    steps: slice | Sequence[slice] | None = None  #: for all rows, or for each that is shown


@dataclass(frozen=True)
class Reading:
    """What a question answering model made of one row; T is the length of the row."""

    answers: Sequence[str]  #: A words
    probabilities: Tensor  #: ``[T, A]``, of each answer if the row ended at that step
    saliency: Tensor | None = (
        None  #: ``[T]``, how much each token mattered; any scale, not negative
    )
    question: Sequence[str] = ()  #: its words
    question_saliency: Tensor | None = None  #: one number for each of them
    expected: str | None = None  #: the right answer


def render(
    trace: Trace,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None,
    select: int | Sequence[int] | Selection | None,
    readings: Reading | Sequence[Reading] | None,
    title: str | None,
) -> str:
    """The whole page."""
    chosen = _as_selection(select)
    rows = _rows(trace, chosen, tokens, readings)
    spans = _spans(trace, rows, chosen.steps)
    directions = _directions(trace, chosen.directions)
    words = _words(trace, rows, tokens)
    read = _readings(trace, rows, readings)
    if chosen.rows is None and tokens is None and readings is None:
        rows = _rows_that_fit(rows, spans, directions)
    groups = {d.name: _groups(d, chosen.groups, rows, spans, directions) for d in directions}
    content = {
        "title": title or f"Inside the {trace.cell}",
        "cell": trace.cell,
        "named": tokens is not None,
        "shown": _what_is_shown(trace, rows, directions, groups),
        "sequences": [
            _sequence(row, words[k][spans[k]], spans[k], read[k]) for k, row in enumerate(rows)
        ],
        "directions": [_direction(d, rows, spans[: len(rows)], groups[d.name]) for d in directions],
    }
    page = _fill_in(str(content["title"]), content)
    if len(page.encode()) > LARGEST_PAGE:
        raise PageError(
            f"the page would have {len(page.encode()) / 1e6:.1f} MB, more than "
            f"{LARGEST_PAGE / 1e6:.0f}: select fewer rows, groups or steps"
        )
    return page


def in_frame(page: str) -> str:
    """The page inside another one, a notebook's, where it must not touch what is around it."""
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" title="rotcell trace" '
        f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 0"></iframe>'
    )


def side_by_side(pages: Sequence[str], title: str) -> str:
    """Pages in frames of one page, which keeps their tokens the same."""
    frames = "".join(
        f'<iframe srcdoc="{html.escape(page, quote=True)}" title="page {k}"></iframe>'
        for k, page in enumerate(pages, start=1)
    )
    return _SIDE_BY_SIDE.replace("{{title}}", html.escape(title)).replace("{{frames}}", frames)


_SIDE_BY_SIDE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{{title}}</title>
<style>
body { margin: 0; display: flex; flex-wrap: wrap; }
iframe { flex: 1 1 600px; height: 100vh; border: 0; }
</style>
</head>
<body>
{{frames}}
<script>
"use strict";
addEventListener("message", (event) => {
  for (const frame of document.querySelectorAll("iframe")) {
    if (frame.contentWindow !== event.source) frame.contentWindow.postMessage(event.data, "*");
  }
});
</script>
</body>
</html>
"""


# What is shown


def _as_selection(select: int | Sequence[int] | Selection | None) -> Selection:
    if select is None or isinstance(select, Selection):
        return select or Selection()
    if isinstance(select, int) and not isinstance(select, bool):
        return Selection(rows=[select])
    if isinstance(select, Sequence) and all(isinstance(row, int) for row in select):
        return Selection(rows=select)
    raise PageError(f"select must be a row, a list of rows or a Selection, got {select!r}")


def _rows(
    trace: Trace,
    chosen: Selection,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None,
    readings: Reading | Sequence[Reading] | None,
) -> list[int]:
    available = trace.layout.rows
    if chosen.rows is None:
        given = available
        if tokens is not None:
            given = 1 if _is_one_row(tokens) else len(tokens)
        elif readings is not None:
            given = 1 if isinstance(readings, Reading) else len(readings)
        return list(range(min(given, available)))
    rows = list(chosen.rows)
    for row in rows:
        if not 0 <= row < available:
            raise PageError(f"select: there is no row {row}, the batch has {available}")
    if not rows:
        raise PageError("select: no row is chosen")
    return rows


def _spans(trace: Trace, rows: Sequence[int], steps: slice | Sequence[slice] | None) -> list[slice]:
    if steps is None or isinstance(steps, slice):
        steps = [steps or slice(None)] * len(rows)
    if len(steps) != len(rows):
        raise PageError(f"select: steps must be one slice or {len(rows)}, got {len(steps)}")
    spans = []
    for row, span in zip(rows, steps, strict=True):
        start, stop, stride = span.indices(trace.layout.length(row))
        if stride != 1 or start >= stop:
            raise PageError(f"select: steps {span} leave nothing of row {row}, or skip some")
        spans.append(slice(start, stop))
    return spans


def _directions(trace: Trace, names: Sequence[str] | None) -> list[Direction]:
    if names is None:
        return list(trace)
    try:
        chosen: list[Direction] = [trace[name] for name in names]
    except (KeyError, IndexError, TypeError):
        known = ", ".join(direction.name for direction in trace)
        raise PageError(f"select: directions must be of {known}, got {list(names)}") from None
    if not chosen:
        raise PageError("select: no direction is chosen")
    return chosen


def _rows_that_fit(
    rows: list[int], spans: Sequence[slice], directions: Sequence[Direction]
) -> list[int]:
    """The first rows, all groups of which fit into a page; at least one."""
    a_step = sum(_numbers_per_step(direction, None) for direction in directions)
    room = _room()
    for count, span in enumerate(spans[:_ROWS]):
        room -= a_step * (span.stop - span.start)
        if room < 0:
            return rows[: max(1, count)]
    return rows[:_ROWS]


def _groups(
    direction: Direction,
    chosen: Sequence[int] | None,
    rows: Sequence[int],
    spans: Sequence[slice],
    directions: Sequence[Direction],
) -> list[int]:
    """The groups of a direction that are shown, in order."""
    available = direction.groups
    if chosen is not None:
        for group in chosen:
            if not 0 <= group < available:
                kind = _kind_of_groups(direction).removesuffix("s")
                raise PageError(f"select: there is no {kind} {group}, the layer has {available}")
        return list(chosen)
    steps = sum(span.stop - span.start for span in spans[: len(rows)])
    room = _room() / len(directions) / steps
    a_group = _numbers_per_step(direction, 1) - _numbers_per_step(direction, 0)
    fitting = max(1, int((room - _numbers_per_step(direction, 0)) / a_group))
    if fitting >= available:
        return list(range(available))
    if direction.rotates:
        moved = turn(direction.flat("angles").float()).mean(0)
        moved = moved.unflatten(0, (available, -1)).mean(1)
    else:
        units = direction.flat("state")[:, : 2 * available].float()
        moved = units.unflatten(1, (available, 2)).norm(dim=-1).mean(0)
    return sorted(moved.topk(fitting).indices.tolist())


def _kind_of_groups(direction: Direction) -> str:
    return "pairs" if direction.rotation_size == 2 else "groups"


def _numbers_per_step(direction: Direction, groups: int | None) -> int:
    """How many numbers a token has on the page, with so many groups or with all."""
    groups = direction.groups if groups is None else groups
    units = direction.rotation_size * groups
    by_unit = [name for name in direction.names if name not in ("angles", "output")]
    outputs = direction.flat("output").shape[-1]
    shown_outputs = units if outputs == direction.hidden_size else outputs
    angles = len(planes_of(direction.rotation_size, groups)) if direction.rotates else 0
    return units * len(by_unit) + shown_outputs + angles


def _room() -> float:
    """Numbers that fit into a page next to its script, its words and the answers."""
    return (LARGEST_PAGE * 0.9 - 200_000) / _BYTES_PER_NUMBER


def _what_is_shown(
    trace: Trace,
    rows: Sequence[int],
    directions: Sequence[Direction],
    groups: dict[str, list[int]],
) -> str:
    """What was left out, for the reader; empty if nothing was."""
    notes = []
    if len(rows) < trace.layout.rows:
        notes.append(f"{len(rows)} of {trace.layout.rows} rows of the batch")
    if len(directions) < len(trace):
        notes.append(f"{len(directions)} of {len(trace)} layers and directions")
    for direction in directions:
        shown, there = len(groups[direction.name]), direction.groups
        if shown < there:
            notes.append(f"{shown} of {there} {_kind_of_groups(direction)} of {direction.name}")
    return f"Shown: {'; '.join(notes)}." if notes else ""


# Words and answers


def _is_one_row(tokens: Sequence[str] | Sequence[Sequence[str]]) -> bool:
    return len(tokens) == 0 or isinstance(tokens[0], str)


def _words(
    trace: Trace, rows: Sequence[int], tokens: Sequence[str] | Sequence[Sequence[str]] | None
) -> list[list[str]]:
    lengths = [trace.layout.length(row) for row in rows]
    if tokens is None:
        return [[str(step) for step in range(length)] for length in lengths]
    if isinstance(tokens, str):
        raise PageError("tokens must be a list of words, got one string")
    lists = [tokens] if _is_one_row(tokens) else tokens
    if len(lists) != len(rows):
        raise PageError(f"tokens must be words for {len(rows)} rows, got {len(lists)}")
    words = [[str(word) for word in row] for row in lists]
    for row, length, found in zip(rows, lengths, words, strict=True):
        if len(found) != length:
            raise PageError(f"tokens of row {row} must be {length}, one per step, got {len(found)}")
    return words


def _readings(
    trace: Trace, rows: Sequence[int], readings: Reading | Sequence[Reading] | None
) -> list[Reading | None]:
    if readings is None:
        return [None] * len(rows)
    given = [readings] if isinstance(readings, Reading) else list(readings)
    if len(given) != len(rows):
        raise PageError(f"readings must be for {len(rows)} rows, got {len(given)}")
    for row, reading in zip(rows, given, strict=True):
        length = trace.layout.length(row)
        shape = (length, len(reading.answers))
        if tuple(reading.probabilities.shape) != shape:
            got = tuple(reading.probabilities.shape)
            raise PageError(f"probabilities of row {row} must have shape {shape}, got {got}")
        for name, saliency, count in (
            ("saliency", reading.saliency, length),
            ("question_saliency", reading.question_saliency, len(reading.question)),
        ):
            if saliency is not None and tuple(saliency.shape) != (count,):
                got = tuple(saliency.shape)
                raise PageError(f"{name} of row {row} must have shape ({count},), got {got}")
    return list(given)


# Encoding: arrays are little-endian float32 in base64, steps outermost


def _encoded(numbers: Tensor) -> str:
    little_endian = numbers.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4")
    return base64.b64encode(little_endian.tobytes()).decode()


def _sequence(
    row: int, words: Sequence[str], span: slice, reading: Reading | None
) -> dict[str, Any]:
    content: dict[str, Any] = {"row": row, "first": span.start, "tokens": list(words)}
    if reading is not None:
        content["answers"] = list(reading.answers)
        content["probabilities"] = _encoded(reading.probabilities[span])
        content["question"] = list(reading.question)
        content["expected"] = reading.expected
        for name, saliency in (
            ("saliency", reading.saliency),
            ("questionSaliency", reading.question_saliency),
        ):
            if saliency is not None:
                content[name] = _encoded(saliency[span] if name == "saliency" else saliency)
    return content


def _direction(
    direction: Direction, rows: Sequence[int], spans: Sequence[slice], groups: Sequence[int]
) -> dict[str, Any]:
    units = _units(direction, groups)
    outputs = direction.flat("output").shape[-1]
    shown_outputs = units if outputs == direction.hidden_size else list(range(outputs))
    planes = _planes(direction, groups)
    columns = {"angles": list(planes), "output": shown_outputs}

    def of_row(row: int, span: slice) -> dict[str, str]:
        arrays = {}
        for name in direction.names:
            shown = direction.row(name, row)[span]
            arrays[name] = _encoded(shown[:, columns.get(name, units)])
        start = direction.row("previous_state", row)
        first = span.stop - 1 if direction.reverse else span.start
        arrays["initial"] = _encoded(start[first][units])
        return arrays

    return {
        "name": direction.name,
        "reverse": direction.reverse,
        "names": list(direction.names),
        "carries": "output" if direction.state_is_output else "after_rotation",
        "size": direction.rotation_size,
        "groups": list(groups),
        "planes": [
            {
                "group": plane.group,
                "layer": plane.layer,
                "columns": [units.index(unit) for unit in plane.units],  # in arrays of units
            }
            for plane in planes.values()
        ],
        "units": units,
        "outputs": shown_outputs,
        "rows": [of_row(row, span) for row, span in zip(rows, spans, strict=True)],
    }


def _units(direction: Direction, groups: Sequence[int]) -> list[int]:
    """The units that are shown: with all groups, those that are in none as well."""
    size = direction.rotation_size
    units = [group * size + k for group in groups for k in range(size)]
    if len(groups) == direction.groups:
        units += range(direction.groups * size, direction.hidden_size)
    return units


def _planes(direction: Direction, groups: Sequence[int]) -> dict[int, Plane]:
    """The planes of these groups, in their order, by the column of the angle."""
    every = list(enumerate(planes_of(direction.rotation_size, direction.groups)))
    return {k: plane for group in groups for k, plane in every if plane.group == group}


def _fill_in(title: str, content: dict[str, Any]) -> str:
    files = resources.files(__package__)
    parts = {
        "title": html.escape(title),
        "style": files.joinpath("page.css").read_text(encoding="utf-8"),
        "script": files.joinpath("page.js").read_text(encoding="utf-8"),
        # "<" could end the element that holds it.
        "data": json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
    }
    template = files.joinpath("page.html").read_text(encoding="utf-8")
    before, *pieces = template.split("{{")
    filled = [before]
    for piece in pieces:
        name, after = piece.split("}}", 1)
        filled += [parts[name], after]
    return "".join(filled)
