"""One thread: the models here are too small for more, which only suffer on a busy machine."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread(same_numbers_and_threads_in_every_test: None) -> None:
    torch.set_num_threads(1)
