"""The page of what each step of the work on the CUDA kernels changed, from what was counted."""

import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture
def history_page(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "build_tools")
    return importlib.import_module("history_page")


def test_every_commit_is_counted_and_the_page_is_of_it(history_page):
    counts = history_page.stored()
    assert list(counts) == list(history_page.COMMITS)
    assert history_page.PAGE.read_text(encoding="utf-8") == history_page.page(counts)
