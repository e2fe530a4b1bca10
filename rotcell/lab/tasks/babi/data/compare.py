"""How close generated data comes to the real files, as a Markdown table."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rotcell.lab.tasks.babi.data.catalog import SPLITS, TASK_NAMES
from rotcell.lab.tasks.babi.data.generate import generate
from rotcell.lab.tasks.babi.data.reader import Size, TaskFiles, open_data, tokenize
from rotcell.lab.tasks.babi.data.stories import Statement, Story, parse_stories

QUANTILES = (0.1, 0.5, 0.9, 1.0)
Item = TypeVar("Item")


@dataclass(frozen=True)
class Profile:
    """What is counted of one task's data."""

    vocabulary: frozenset[str]
    story_tokens: tuple[int, ...]  # tokens before each question, sorted
    statements: tuple[int, ...]  # statements since the question before, sorted
    questions_per_story: Counter[int]
    answers: Counter[str]
    statement_forms: Counter[str]
    question_forms: Counter[str]
    supports: Counter[int]

    @classmethod
    def of(cls, stories: Sequence[Story]) -> Profile:
        """Count stories of one task."""
        statements = [line.text for story in stories for line in story.statements]
        queries = [line for story in stories for line in story.queries]
        asked = [query.text for query in queries]
        words = {word for text in {*statements, *asked} for word in tokenize(text)}
        return cls(
            vocabulary=frozenset(words.union(query.answer for query in queries)),
            story_tokens=tuple(sorted(length for story in stories for length in _lengths(story))),
            statements=tuple(sorted(gap for story in stories for gap in _gaps(story))),
            questions_per_story=Counter(len(story.queries) for story in stories),
            answers=Counter(query.answer for query in queries),
            statement_forms=Counter(map(_form, statements)),
            question_forms=Counter(map(_form, asked)),
            supports=Counter(len(query.support) for query in queries),
        )


# What differs between sentences of one form: people, places, things and so on.
_SLOTS = {
    "PERSON": "Antoine Bernhard Bill Brian Daniel Emily Fred Gertrude Greg Jason Jeff Jessica John "
    "Julie Julius Lily Mary Sandra Sumit Winona Yann",
    "PLACE": "bathroom bedroom cinema garden hallway kitchen office park school",
    "THING": "apple football milk pajamas",
    "SHAPE": "rectangle sphere square triangle",
    "COLOR": "blue gray green pink red white yellow",
    "ANIMAL": "cat cats frog lion mice mouse rhino sheep swan wolf wolves",
    "SIZED": "box chest chocolate chocolates container suitcase",
    "DIRECTION": "east north south west",
    "STATE": "bored hungry thirsty tired",
    "DAYTIME": "afternoon evening morning",
}
_SLOT_OF = {word: slot for slot, words in _SLOTS.items() for word in words.split()}


def _form(text: str) -> str:
    """The sentence with names replaced by what they name."""
    form = re.sub(r"\w+", lambda match: _slot(match[0]), text)
    return form.replace("COLOR SHAPE", "SHAPE").replace("SIZED of SIZED", "SIZED")


def _slot(word: str) -> str:
    for spelling in (word, word.lower(), word.capitalize()):
        if spelling in _SLOT_OF:
            return _SLOT_OF[spelling]
    return word


def _lengths(story: Story) -> Iterator[int]:
    """The tokens before each question."""
    length = 0
    for line in story.lines:
        if isinstance(line, Statement):
            length += len(tokenize(line.text))
        else:
            yield length


def _gaps(story: Story) -> Iterator[int]:
    """The statements before each question, since the one before it."""
    gap = 0
    for line in story.lines:
        if isinstance(line, Statement):
            gap += 1
        else:
            yield gap
            gap = 0


def quantile(sorted_values: Sequence[int], share: float) -> int:
    """The smallest value that at least this share of the values does not exceed."""
    position = max(0, -int(-share * len(sorted_values) // 1) - 1)
    return sorted_values[position]


def distance(one: Counter[Item], other: Counter[Item]) -> float:
    """Total variation distance of two distributions: 0 if equal, 1 if disjoint."""
    totals = sum(one.values()), sum(other.values())
    keys = {*one, *other}
    return sum(abs(one[key] / totals[0] - other[key] / totals[1]) for key in keys) / 2


def profile_of_files(files: TaskFiles, task: int) -> Profile:
    """The profile of train and test together."""
    return Profile.of(
        [story for split in SPLITS for story in parse_stories(*files.read(task, split))]
    )


def profile_of_generated(task: int, questions: int, seed: int) -> Profile:
    """The profile of generated train and test data together."""
    return Profile.of(
        [story for split in SPLITS for story in generate(task, questions, seed, split)]
    )


def compare(
    real_path: str | os.PathLike[str],
    generated_path: str | os.PathLike[str] | None = None,
    *,
    tasks: Iterable[int] | None = None,
    questions: int = 1000,
    seed: int = 0,
    size: Size = "1k",
) -> str:
    """Real against generated as Markdown; generated on the fly when no folder is given."""
    real_files = open_data(real_path, size=size)
    generated_files = None if generated_path is None else open_data(generated_path, size=size)
    chosen = sorted({task for task, _ in real_files.available} if tasks is None else tasks)
    pairs = []
    for task in chosen:
        if generated_files is None:
            generated = profile_of_generated(task, questions, seed)
        else:
            generated = profile_of_files(generated_files, task)
        pairs.append((task, profile_of_files(real_files, task), generated))
    return _markdown(pairs)


_Pair = tuple[int, Profile, Profile]

_Columns = dict[str, Callable[[Profile, Profile], str]]

_WORDS: _Columns = {
    "words": lambda r, g: f"{len(r.vocabulary)} / {len(g.vocabulary)}",
    "only real": lambda r, g: _words(r.vocabulary - g.vocabulary),
    "only generated": lambda r, g: _words(g.vocabulary - r.vocabulary),
    "story tokens 10, 50, 90, 100 %": lambda r, g: _both(
        _quantiles, r.story_tokens, g.story_tokens
    ),
    "commonest answer": lambda r, g: _both(_majority, r.answers, g.answers),
    "answers apart": lambda r, g: f"{distance(r.answers, g.answers):.3f}",
}
_SENTENCES: _Columns = {
    "statements per question": lambda r, g: _both(_mean, r.statements, g.statements),
    "questions per story": lambda r, g: _both(
        lambda counts: _mean(sorted(counts.elements())),
        r.questions_per_story,
        g.questions_per_story,
    ),
    "statement forms": lambda r, g: f"{len(r.statement_forms)} / {len(g.statement_forms)}",
    "apart": lambda r, g: f"{distance(r.statement_forms, g.statement_forms):.3f}",
    "question forms": lambda r, g: f"{len(r.question_forms)} / {len(g.question_forms)}",
    "apart ": lambda r, g: f"{distance(r.question_forms, g.question_forms):.3f}",
    "supporting facts": lambda r, g: _both(
        lambda counts: _mean(sorted(counts.elements())), r.supports, g.supports
    ),
}


def _markdown(pairs: Sequence[_Pair]) -> str:
    legend = (
        "Real / generated. Words include answers; `apart` is the total variation distance of two\n"
        "distributions (0 equal, 1 disjoint).\n"
    )
    return "\n".join([legend, _table(_WORDS, pairs), _table(_SENTENCES, pairs)])


def _table(columns: _Columns, pairs: Sequence[_Pair]) -> str:
    lines = [
        f"| task | {' | '.join(name.strip() for name in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for task, real, generated in pairs:
        cells = " | ".join(column(real, generated) for column in columns.values())
        lines.append(f"| {task} {TASK_NAMES[task]} | {cells} |")
    return "\n".join(lines) + "\n"


def _both(show: Callable[[Item], str], real: Item, generated: Item) -> str:
    return f"{show(real)} / {show(generated)}"


def _quantiles(values: tuple[int, ...]) -> str:
    return ", ".join(str(quantile(values, share)) for share in QUANTILES)


def _mean(values: Sequence[int]) -> str:
    return f"{sum(values) / len(values):.2f}"


def _majority(answers: Counter[str]) -> str:
    ((_, count),) = answers.most_common(1)
    return f"{count / answers.total():.3f}"


def _words(words: Iterable[str]) -> str:
    return " ".join(sorted(words)) or "-"
