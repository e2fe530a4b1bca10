"""The page as a file: what is in it, how large it is, what it refuses. No browser is needed."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import rotcell
from rotcell import RotGRU, RotLSTM
from rotcell.tracing import PageError, Reading, Selection
from rotcell.tracing.page import LARGEST_PAGE


def data_of(path):
    """What the page holds, arrays not yet decoded."""
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def decoded(text, columns):
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(-1, columns)


@pytest.fixture
def trace():
    return rotcell.trace(RotLSTM(3, 6), torch.randn(5, 4, 3))


def test_holds_the_numbers_of_the_trace(tmp_path):
    trace = rotcell.trace(RotLSTM(3, 7, 2, bidirectional=True), torch.randn(5, 4, 3))
    data = data_of(trace.save(tmp_path / "t.html", select=[2, 0]))
    assert [s["row"] for s in data["sequences"]] == [2, 0]
    assert [d["name"] for d in data["directions"]] == [d.name for d in trace]
    for shown, direction in zip(data["directions"], trace, strict=True):
        assert shown["units"] == list(range(7))
        for arrays, row in zip(shown["rows"], (2, 0), strict=True):
            for name in direction.names:
                expected = direction.row(name, row).numpy()
                found = decoded(arrays[name], expected.shape[1])
                assert np.array_equal(found, expected), name
            assert not decoded(arrays["initial"], 7).any()


def test_a_part_of_the_steps_starts_from_the_state_before_it(tmp_path, trace):
    select = Selection(rows=[1], steps=slice(2, 4), groups=[2, 0])
    path = trace.save(tmp_path / "t.html", list("abcde"), select)
    data = data_of(path)
    assert data["sequences"][0]["tokens"] == ["c", "d"]
    shown = data["directions"][0]
    assert shown["groups"] == [2, 0]
    assert shown["units"] == [4, 5, 0, 1]
    state = trace[0].row("state", 1).numpy()
    assert np.array_equal(decoded(shown["rows"][0]["initial"], 4)[0], state[1, [4, 5, 0, 1]])
    assert np.array_equal(
        decoded(shown["rows"][0]["angles"], 2), trace[0].row("angles", 1)[2:4, [2, 0]]
    )
    assert "2 of 3 pairs" in data["shown"]


def test_packed_rows_have_their_own_length(tmp_path):
    x = pack_sequence([torch.randn(n, 3) for n in (2, 5, 3)], enforce_sorted=False)
    trace = rotcell.trace(RotGRU(3, 4), x)
    data = data_of(trace.save(tmp_path / "t.html"))
    assert [len(s["tokens"]) for s in data["sequences"]] == [2, 5, 3]
    assert data["directions"][0]["carries"] == "output"


def test_words_cannot_break_out_of_the_script(tmp_path, trace):
    nasty = ["</script><b>", "<!--", "é", '"', "\\"]
    path = trace.save(tmp_path / "t.html", nasty, title="<i>&")
    assert data_of(path)["sequences"][0]["tokens"] == nasty
    assert "<title>&lt;i&gt;&amp;</title>" in path.read_text(encoding="utf-8")


def test_needs_nothing_from_elsewhere(tmp_path, trace):
    text = trace.save(tmp_path / "t.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)\s*=|url\(|@import|https?://", text)
    assert "default-src 'none'" in text


def test_notebooks_show_it_in_a_frame(trace):
    shown = trace._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown


@pytest.mark.parametrize(
    ("hidden", "steps", "batch"), [(512, 400, 1), (50, 68, 64), (256, 3000, 2), (1024, 50, 3)]
)
def test_no_page_is_too_large(tmp_path, hidden, steps, batch):
    trace = rotcell.trace(RotLSTM(2, hidden), torch.randn(steps, batch, 2))
    path = trace.save(tmp_path / "t.html")
    assert path.stat().st_size <= LARGEST_PAGE
    data = data_of(path)
    if len(data["directions"][0]["groups"]) < hidden // 2:
        # Those are left out that turn least.
        turns = {p.plane.group: p.turn for p in trace.summary()}
        shown = set(data["directions"][0]["groups"])
        assert (
            min(turns[p] for p in shown)
            >= max(t for p, t in turns.items() if p not in shown) - 1e-5
        )
        assert "pairs" in data["shown"]


def test_a_choice_that_does_not_fit_is_refused(tmp_path):
    trace = rotcell.trace(RotLSTM(2, 200), torch.randn(900, 1, 2))
    with pytest.raises(PageError, match="select fewer"):
        trace.save(tmp_path / "t.html", select=Selection(groups=range(100)))
    assert not (tmp_path / "t.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": ["a"]}, "must be 5, one per step, got 1"),
        ({"tokens": "abcde"}, "got one string"),
        ({"tokens": [["a"] * 5] * 2, "select": 0}, "words for 1 rows, got 2"),
        ({"select": 9}, "there is no row 9, the batch has 4"),
        ({"select": []}, "no row is chosen"),
        ({"select": "first"}, "select must be"),
        ({"select": Selection(groups=[3])}, "there is no pair 3"),
        ({"select": Selection(directions=["l1"])}, "directions must be of l0"),
        ({"select": Selection(steps=slice(5, 5))}, "leave nothing"),
        ({"readings": Reading(["x"], torch.zeros(4, 1))}, r"shape \(5, 1\), got \(4, 1\)"),
        (
            {"readings": Reading(["x"], torch.zeros(5, 1), torch.zeros(2))},
            r"saliency of row 0 must have shape \(5,\)",
        ),
    ],
)
def test_mismatched_arguments_are_reported(tmp_path, trace, arguments, message):
    with pytest.raises(PageError, match=message):
        trace.save(tmp_path / "t.html", **arguments)
    assert not (tmp_path / "t.html").exists()


def test_groups_are_shown_with_the_planes_that_turn_them(tmp_path):
    trace = rotcell.trace(RotLSTM(3, 10, rotation_size=3), torch.randn(5, 1, 3))
    data = data_of(trace.save(tmp_path / "t.html"))
    (shown,) = data["directions"]
    assert (shown["size"], shown["groups"], shown["units"]) == (3, [0, 1, 2], list(range(10)))
    assert len(shown["planes"]) == 9
    for plane, named in zip(shown["planes"], trace[0].planes, strict=True):
        assert (plane["group"], plane["layer"]) == (named.group, named.layer)
        assert tuple(shown["units"][column] for column in plane["columns"]) == named.units
    angles = decoded(shown["rows"][0]["angles"], 9)
    assert np.array_equal(angles, trace[0].row("angles", 0))

    data = data_of(trace.save(tmp_path / "t.html", select=Selection(groups=[2, 0])))
    (shown,) = data["directions"]
    assert shown["units"] == [6, 7, 8, 0, 1, 2]
    assert [plane["group"] for plane in shown["planes"]] == [2, 2, 2, 0, 0, 0]
    assert [plane["columns"] for plane in shown["planes"][3:]] == [[3, 4], [4, 5], [3, 4]]
    angles = decoded(shown["rows"][0]["angles"], 6)
    assert np.array_equal(angles, trace[0].row("angles", 0)[:, [6, 7, 8, 0, 1, 2]])
    assert "2 of 3 groups of l0" in data["shown"]
    with pytest.raises(PageError, match="there is no group 3, the layer has 3"):
        trace.save(tmp_path / "t.html", select=Selection(groups=[3]))
