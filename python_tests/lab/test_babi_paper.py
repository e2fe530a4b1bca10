"""The paper's numbers."""

from __future__ import annotations

from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS
from rotcell.lab.tasks.babi.report.paper import PRINTED


def test_every_cell_and_task_is_there() -> None:
    assert set(PRINTED) <= set(CELLS)
    for table in PRINTED.values():
        assert tuple(table) == ALL_TASKS


def test_numbers_that_the_text_of_the_paper_mentions() -> None:
    assert PRINTED["lstm"][18] == (70.3, 20.8)
    assert PRINTED["rotlstm"][18] == (90.5, 0.9)
    # "similar performance increase (22.1 %) is observed in task 5", "14 %" in task 7
    assert round(PRINTED["rotlstm"][5].mean - PRINTED["lstm"][5].mean, 1) == 22.1
    assert round(PRINTED["rotlstm"][7].mean - PRINTED["lstm"][7].mean, 1) == 14.0
    assert PRINTED["gru"][20] == (92.3, 1.9)
    assert PRINTED["rotgru"][20] == (93.6, 2.9)
    assert PRINTED["rotgru"][10] == (48.4, 1.0)
