"""``rotcell-lab look``: see inside a model that reads a story."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from rotcell.lab.cli.options import (
    add_data_options,
    positive,
    say_data,
    source_of,
    training_data,
)
from rotcell.lab.errors import LookError
from rotcell.lab.tasks.babi.data.reader import Question, tokenize
from rotcell.lab.tasks.babi.look import Reader, look_at_question
from rotcell.tracing import save_side_by_side


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab look`."""
    parser.add_argument(
        "checkpoint", type=Path, help="file of `train --checkpoint` or `sweep --keep-models`"
    )
    parser.add_argument(
        "--question",
        type=positive,
        metavar="K",
        help="read the K-th test question of the task (default: read a story from the terminal)",
    )
    parser.add_argument(
        "--task", type=int, metavar="N", help="bAbI task (default: the task of the model)"
    )
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="a second model to read the same story, shown next to the first",
    )
    add_data_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="page to write (default: named after the model and story)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(options: argparse.Namespace) -> int:
    """Write the page and print its path; returns the exit status."""
    reader = Reader.load(options.checkpoint)
    task = reader.settings.task if options.task is None else options.task
    if options.question is None:
        if options.task is not None or options.data is not None or options.test_data is not None:
            raise LookError("--task and the data options choose a question: they need --question")
        story, asked, expected = *_typed_story(), None
        title, name = "A story that was typed", "look-typed.html"
    else:
        question = _test_question(options, task, reader)
        story, asked, expected = question.story_tokens, question.question, question.answer
        title = f"Question {options.question} of bAbI task {task}"
        name = f"look-task{task}-question{options.question}.html"
    unknown = {w: None for w in (*story, *asked) if w not in reader.dictionary}
    if unknown:
        print(f"The model does not know, and leaves out: {', '.join(unknown)}")
    readers = [reader] + ([Reader.load(options.compare)] if options.compare else [])
    right = "" if expected is None else f" (right is {expected})"
    pages = []
    for each in readers:
        seen = look_at_question(each, story, asked, expected)
        pages.append(seen.html(f"{title}, read by a {seen.trace.cell}"))
        answer = seen.reading.answers[int(seen.reading.probabilities[-1].argmax())]
        chance = float(seen.reading.probabilities[-1].max())
        print(f"Answer of the {seen.trace.cell}: {answer}, {chance:.0%}{right}.")
    path: Path = options.out or Path(name)
    if options.compare:
        save_side_by_side(path, pages, title)
    else:
        path.write_text(pages[0], encoding="utf-8")
    print(f"To look at: {path.resolve()}")
    if options.open and not webbrowser.open(path.resolve().as_uri()):
        print("There is no browser to open it with.")
    return 0


def _test_question(options: argparse.Namespace, task: int, reader: Reader) -> Question:
    source = source_of(options)
    loaded = source.load(task)
    questions = loaded.test
    used = f"{loaded.data.test.name}, test questions of task {task}"
    say_data([used], source, training_data(reader.data, loaded))
    if options.question > len(questions):
        raise LookError(f"there is no question {options.question}: the test has {len(questions)}")
    chosen: Question = questions[options.question - 1]
    return chosen


def _typed_story() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines up to the first that ends in a question mark, which is the question."""
    if sys.stdin.isatty():
        print("Type the sentences of a story, one per line, and then a question.")
    story: list[str] = []
    for line in sys.stdin:
        words = tokenize(line)
        if words[-1:] == ("?",):
            return tuple(story), words
        story += words
    raise LookError("there was no question: a line that ends in ?")
