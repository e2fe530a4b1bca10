"""The studies of results/PROTOCOL.md: what is run, most informative first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rotcell.lab.cells import CELLS, STARTS, matched_size
from rotcell.lab.sweep.study import Block, Plain, Study, key_of
from rotcell.lab.tasks import copying, recall
from rotcell.lab.tasks.babi.data.catalog import ALL_TASKS
from rotcell.lab.tasks.groups import multiplication
from rotcell.lab.tasks.music import KEYS

RATES: Final = (1e-3, 3e-3, 1e-2)
DROPOUTS: Final = (0.0, 0.4)
TEXT_CHARACTERS: Final = 65


def cells_at(size: int, inputs: int, outputs: int, cells: Iterable[str]) -> list[Plain]:
    """Cells of one size, every start of the angles, and plain ones with as many weights."""
    arms: list[Plain] = []
    cells = tuple(cells)
    for cell in cells:
        if CELLS[cell].rotating:
            arms += [{"cell": cell, "size": size, "start": start} for start in STARTS]
        else:
            twin = next((each for each in cells if CELLS[each].plain == cell), None)
            sizes = (size, matched_size(cell, inputs, outputs, size, twin))
            arms += [{"cell": cell, "size": each} for each in sizes]
    return list({key_of(arm): arm for arm in arms}.values())


def tracking(
    dataset: str,
    sizes: Iterable[int],
    cells: Iterable[str] = ("lstm", "rotlstm"),
    variant: str = "",
) -> tuple[Block, ...]:
    """State tracking with one group, a block per size; `variant` keeps its rows apart."""
    order = len(multiplication(dataset))
    return tuple(
        Block(
            "groups",
            "core",
            f"{dataset}{variant}, {size} units, {', '.join(cells)}",
            tuple(
                {"task": "groups", "dataset": dataset, **arm}
                for arm in cells_at(size, order, order, cells)
            ),
            {"lr": RATES},
        )
        for size in sizes
    )


def music(dataset: str, size: int, cells: Iterable[str], tuning_seeds: int = 2) -> Block:
    """Music at one size."""
    arms = cells_at(size, KEYS, KEYS, cells)
    return Block(
        "music",
        "core",
        f"{dataset}, {size} units, {', '.join(cells)}",
        tuple({"task": "music", "dataset": dataset, **arm} for arm in arms),
        {"lr": RATES, "dropout": DROPOUTS},
        tuning_seeds,
    )


def text(size: int, cells: Iterable[str]) -> Block:
    """Characters of Tiny Shakespeare."""
    arms = cells_at(size, TEXT_CHARACTERS, TEXT_CHARACTERS, cells)
    return Block(
        "text",
        "core",
        f"Tiny Shakespeare, {size} units, {', '.join(cells)}",
        tuple({"task": "text", "dataset": "tinyshakespeare", **arm} for arm in arms),
        {"lr": RATES, "dropout": DROPOUTS},
        tuning_seeds=1,
        seeds=5,
    )


def memory(task: str, size: int, cells: Iterable[str]) -> Block:
    """Copying or associative recall."""
    module, (inputs, outputs) = {
        "copying": (copying, (copying.SYMBOLS + 2, copying.SYMBOLS + 1)),
        "recall": (recall, (recall.LETTERS + recall.DIGITS + 1, recall.DIGITS)),
    }[task]
    return Block(
        task,
        "core",
        f"{size} units, {', '.join(cells)}",
        tuple(
            {"task": task, "dataset": module.TASK.datasets[0], **arm}
            for arm in cells_at(size, inputs, outputs, cells)
        ),
        {"lr": RATES},
        tuning_seeds=1,
        seeds=5,
    )


#: The tasks of the paper's text, which the state-size experiment has, too.
SPOKEN_OF: Final = (1, 4, 5, 7, 11, 12, 13, 18, 20)
BABI_CELLS: Final = ("lstm", "rotlstm", "gru", "rotgru")  # "gru" is a ClassicGRU there


def babi_packed(size: int) -> Block:
    """The paper's protocol but for the padding: 40 epochs, rate 0.001, hard gates."""
    return Block(
        "babi",
        "packed-sizes",
        f"packed, the paper's epochs and rate, {size} units",
        tuple(
            {"task": task, "cell": cell, "state_size": size, "packed": True}
            for task in ALL_TASKS
            for cell in BABI_CELLS
        ),
        seeds=5,
    )


def babi_tuned(size: int) -> Block:
    """The rate chosen per task and cell, sigmoid gates, 150 epochs."""
    return Block(
        "babi",
        "packed-tuned",
        f"packed, tuned, 150 epochs, {size} units",
        tuple(
            {
                "task": task,
                "cell": cell,
                "state_size": size,
                "packed": True,
                "gates": "sigmoid",
                "epochs": 150,
            }
            for task in SPOKEN_OF
            for cell in BABI_CELLS
        ),
        {"lr": RATES},
        tuning_seeds=1,
        seeds=5,
    )


_LSTMS: Final = ("lstm", "rotlstm")
_GRUS: Final = ("classicgru", "rotgru")
_BOTH: Final = (*_LSTMS, *_GRUS)

CORE: Final = Study(
    "core",
    "the cells that exist today on state tracking, bAbI without padding, music and text",
    (
        *tracking("mod5", (8,), _BOTH),
        babi_packed(10),
        *tracking("s3", (8,), _BOTH),
        music("jsb", 200, _LSTMS),
        *tracking("parity", (4,), _BOTH),
        *tracking("mod7", (8,), _BOTH),
        *tracking("mod5", (4, 16), _BOTH),
        *tracking("s3", (4, 16), _BOTH),
        *tracking("mod7", (4, 16), _BOTH),
        *tracking("parity", (8, 16), _BOTH),
        babi_packed(50),
        babi_packed(20),
        *tracking("a5", (32,), _LSTMS),
        music("jsb", 200, _GRUS),
        *(block for name in ("mod5", "s3", "mod7") for block in tracking(name, (32,), _BOTH)),
        *tracking("a5", (32,), _GRUS),
        *tracking("a5", (16, 64), _LSTMS),
        *tracking("s5", (32, 64), _LSTMS),
        music("nottingham", 200, _LSTMS, tuning_seeds=1),
        text(256, _LSTMS),
        memory("recall", 50, _BOTH),
        memory("copying", 64, _LSTMS),
        babi_tuned(10),
        babi_tuned(50),
        babi_tuned(20),
        *(block for name in ("mod5", "s3", "mod7") for block in tracking(name, (8,), ("gru",))),
        music("jsb", 200, ("gru",)),
        *tracking("a5", (16, 64), _GRUS),
        *tracking("s5", (32, 64), _GRUS),
        *(block for name in ("mod5", "s3", "mod7") for block in tracking(name, (64,), _BOTH)),
        music("nottingham", 200, _GRUS, tuning_seeds=1),
        text(256, _GRUS),
    ),
)


def larger(dataset: str, size: int, rotation: int) -> tuple[Block, ...]:
    """State tracking with groups of more than two units."""
    return tracking(dataset, (size,), ("lstm", f"rotlstm{rotation}"), f", rotations of {rotation}")


LARGER: Final = Study(
    "larger",
    "RotLSTM with rotations of 3, 4 and 8 units on state tracking",
    (
        *larger("s3", 8, 3),
        *larger("a5", 32, 3),
        *larger("a5", 32, 4),
        *larger("s3", 8, 4),
        *larger("s5", 32, 4),
        *larger("a5", 16, 4),
        *larger("a5", 32, 8),
        *larger("s5", 32, 8),
    ),
)


#: Variants of RotLSTM, layer norm, and other authors' rotating layers.
_OTHERS: Final = ("rotlstm-input", "linearrotlstm", "lnlstm", "lnrotlstm", "rum", "goru", "eurnn")

OTHERS: Final = Study(
    "others",
    "angles from the input, LinearRotLSTM, layer norm, RUM, GORU, EURNN on tasks of `core`",
    (
        *tracking("mod5", (8,), ("lstm", "rotlstm", *_OTHERS)),
        *tracking("s3", (8,), ("lstm", "rotlstm", *_OTHERS)),
        *tracking("a5", (32,), ("lstm", "rotlstm", *_OTHERS)),
        music("jsb", 200, ("lstm", "rotlstm", *_OTHERS)),
    ),
)


def treebank(task: str, size: int, cells: Iterable[str]) -> Block:
    """Words or characters of Penn Treebank; the words' rate is that of the printed result."""
    is_words = task == "ptb_words"
    inputs, outputs = (size, 10_000) if is_words else (50, 50)
    arms = cells_at(size, inputs, outputs, cells)
    return Block(
        task,
        "core",
        f"{size} units, {', '.join(cells)}",
        tuple({"task": task, "dataset": "ptb", **arm} for arm in arms),
        {"lr": (1.0,)} if is_words else {"lr": RATES},
        tuning_seeds=1,
        seeds=5,
    )


LATER: Final = Study(
    "later",
    "words and characters of Penn Treebank, other music, MNIST by pixels: if hours are left",
    (
        treebank("ptb_words", 200, _LSTMS),
        treebank("ptb_characters", 512, _LSTMS),
        Block(
            "ptb_characters",
            "core",
            "the anchor: 1024 units, eurnn",
            ({"task": "ptb_characters", "dataset": "ptb", "cell": "eurnn", "size": 1024},),
            {"lr": RATES},
            tuning_seeds=1,
            seeds=5,
        ),
        music("musedata", 200, _LSTMS, tuning_seeds=1),
        music("piano", 200, _LSTMS, tuning_seeds=1),
        Block(
            "pixels",
            "core",
            "permuted MNIST, 128 units, lstm, rotlstm",
            tuple(
                {"task": "pixels", "dataset": "permuted", **arm}
                for arm in cells_at(128, 1, 10, _LSTMS)
            ),
            {"lr": RATES},
            tuning_seeds=1,
            seeds=3,
        ),
    ),
)

_PARTS: Final = (CORE, OTHERS, LARGER, LATER)
ALL: Final = Study(
    "all", "all studies, one after the other", tuple(b for part in _PARTS for b in part.blocks)
)

STUDIES: Final = {study.name: study for study in (*_PARTS, ALL)}
