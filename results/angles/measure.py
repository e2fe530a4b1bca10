"""Measures of a trained model: its angles, what determines them, and what they contribute."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from variants import paper_rule, undo, use_rule

import rotcell
from rotcell.lab.tasks.babi.look import layer_input
from rotcell.lab.tasks.babi.model import QuestionAnswerer
from rotcell.lab.tasks.babi.tensors import PADDING, Examples
from rotcell.tracing.summary import SATURATED, turn

BINS = 64  # of a histogram of angles
STORIES = 300  # for measures of angles; accuracies use the whole test set
KEPT_PAIRS = (2, 4, 8, 16)
_BATCH = 100
_LAST = 12  # steps at the end of a story


@dataclass
class Steps:
    """Tokens of many sequences, padding left out."""

    angles: Tensor | None  # [N, P]
    norms: Tensor  # [N], of the cell state
    words: Tensor  # [N]
    positions: Tensor  # [N], from the first word of the sequence on
    asked: Tensor  # [N], which question the model had read; equal numbers for equal questions


def watch(model: QuestionAnswerer, examples: Examples, rnn: str = "story_rnn") -> Steps:
    """Trace one of the model's two layers on examples padded in front."""
    layer = getattr(model, rnn)
    asked = torch.unique(examples.question, dim=0, return_inverse=True)[1]
    found: list[Steps] = []
    for start in range(0, examples.rows, _BATCH):
        batch = examples.part(start, start + _BATCH)
        read = batch.story if rnn == "story_rnn" else batch.question
        real = (read != PADDING).t()
        positions = real.cumsum(0) - 1
        read_by_layer, context = layer_input(layer, model, batch)
        direction = rotcell.trace(layer, read_by_layer, context=context)[0]
        angles = direction.angles
        found.append(
            Steps(
                None if angles is None else angles[real],
                direction.state.norm(dim=-1)[real],
                read.t()[real],
                positions[real],
                asked[start : start + _BATCH].expand(real.shape)[real],
            )
        )
    return Steps(
        None if found[0].angles is None else torch.cat([part.angles for part in found]),
        *(
            torch.cat([getattr(part, name) for part in found])
            for name in ("norms", "words", "positions", "asked")
        ),
    )


def histogram(angles: Tensor) -> list[int]:
    """Counts in equal bins from 0 to 2 pi."""
    return torch.histc(angles.float(), BINS, 0, 2 * math.pi).long().tolist()


def saturated(angles: Tensor) -> float:
    """The share of angles within 0.1 rad of 0 or 2 pi."""
    return float((turn(angles) < SATURATED).double().mean())


def explained(angles: Tensor, groups: Tensor) -> list[float]:
    """Per pair, the share of the angles' variance that knowing the group explains.

    Angles count as points on the circle. Adjusted for the number of groups, so that many small ones
    explain nothing by themselves: noise gives 0 on average, and can give a little less.
    """
    points = torch.polar(torch.ones_like(angles, dtype=torch.float64), angles.double())
    _, group = groups.unique(return_inverse=True)
    count = torch.bincount(group).double()
    sums = torch.zeros(len(count), angles.shape[1], dtype=points.dtype)
    sums.index_add_(0, group, points)
    within = (1 - (sums / count[:, None]).abs() ** 2) * count[:, None]
    total = (1 - points.mean(0).abs() ** 2) * len(points)
    free = len(points) - len(count)
    if free <= 0:
        return [math.nan] * angles.shape[1]
    return (1 - (within.sum(0) / free) / (total / (len(points) - 1))).tolist()


def what_decides(steps: Steps) -> dict[str, list[float]]:
    """Share of variance explained, per pair, by what is known about a step."""
    assert steps.angles is not None
    words, positions, asked = (
        getattr(steps, n).unique(return_inverse=True)[1] for n in ("words", "positions", "asked")
    )
    known = {
        "word": words,
        "position": positions,
        "word and question": words * (int(asked.max()) + 1) + asked,
        "word and position": words * (int(positions.max()) + 1) + positions,
    }
    return {name: explained(steps.angles, groups) for name, groups in known.items()}


def circular_mean(angles: Tensor) -> Tensor:
    """Per pair, 0 to 2 pi."""
    points = torch.polar(torch.ones_like(angles), angles)
    return points.mean(0).angle() % (2 * math.pi)


@torch.no_grad()
def accuracy(model: QuestionAnswerer, examples: Examples) -> float:
    """The share of right answers."""
    right = 0
    for start in range(0, examples.rows, 250):
        batch = examples.part(start, start + 250)
        right += int((model(batch).argmax(-1) == batch.answer).sum())
    return right / examples.rows


def ablations(model: QuestionAnswerer, train: Examples, test: Examples) -> dict[str, float]:
    """Test accuracy with the angles of both layers replaced; means are those of training."""
    rules = {rnn: _rules(Habits.of(model, train, rnn), words_of(test, rnn)) for rnn in RNNS}
    found = {"as trained": accuracy(model, test)}
    for name in rules[RNNS[0]]:
        found[name] = _accuracy_by_rule(model, test, {rnn: rules[rnn][name] for rnn in RNNS})
    return found


RNNS = ("question_rnn", "story_rnn")


def words_of(examples: Examples, rnn: str) -> Tensor:
    """What a layer reads, ``[T, N]``."""
    return (examples.story if rnn == "story_rnn" else examples.question).t()


@dataclass
class Habits:
    """What a layer usually does, by the training stories."""

    mean: Tensor  # [P], angles
    by_word: Tensor  # [words, P]; the mean of all for a word that never came, and for padding
    from_x: Tensor  # [P], the mean of what x gives to the angles before activation
    from_h: Tensor  # [P], of what h gives
    turning: Tensor  # pairs, those that turn most first
    varying: Tensor  # pairs, those whose angles differ most first

    @classmethod
    def of(cls, model: QuestionAnswerer, train: Examples, rnn: str) -> Habits:
        """Look at a layer."""
        steps = watch(model, train, rnn)
        angles = steps.angles
        mean = circular_mean(angles)
        by_word = mean.repeat(len(model.story_embedding.weight), 1)
        for word in steps.words.unique().tolist():
            by_word[word] = circular_mean(angles[steps.words == word])
        spread = 1 - torch.polar(torch.ones_like(angles), angles).mean(0).abs()
        return cls(
            mean,
            by_word,
            *_mean_parts(model, train, rnn),
            turn(angles).mean(0).argsort(descending=True),
            spread.argsort(descending=True),
        )


@torch.no_grad()
def _mean_parts(model: QuestionAnswerer, train: Examples, rnn: str) -> tuple[Tensor, Tensor]:
    """The means of the two parts of the angles before activation, over real words."""
    real = words_of(train, rnn) != PADDING
    parts: list[tuple[Tensor, Tensor]] = []

    def record(from_x: Tensor, from_h: Tensor, step: int) -> Tensor:
        parts.append((from_x[real[step]], from_h[real[step]]))
        return paper_rule(from_x, from_h, step)

    layer = getattr(model, rnn)
    use_rule(layer, record)
    try:
        model(train)
    finally:
        undo(layer)
    from_x, from_h = (torch.cat(part).mean(0) for part in zip(*parts, strict=True))
    return from_x, from_h


_Rule = Callable[[Tensor, Tensor, int, slice], Tensor]  # the last: which rows of the test set


def _rules(habits: Habits, words: Tensor) -> dict[str, _Rule]:
    """By name; `words` are those of the test, ``[T, N]``."""

    def paper(x: Tensor, h: Tensor, t: int, rows: slice) -> Tensor:
        return paper_rule(x, h, t)

    def where(pairs: Tensor, inside: _Rule, outside: _Rule) -> _Rule:
        chosen = torch.zeros(len(habits.mean), dtype=torch.bool)
        chosen[pairs] = True
        return lambda *given: torch.where(chosen, inside(*given), outside(*given))

    def off(x: Tensor, h: Tensor, t: int, rows: slice) -> Tensor:
        return torch.zeros_like(x)

    def frozen(x: Tensor, h: Tensor, t: int, rows: slice) -> Tensor:
        return habits.mean.expand_as(x)

    rules: dict[str, _Rule] = {
        "plain loop, as trained": paper,
        "rotation off": off,
        "frozen at the pair's mean": frozen,
        "frozen at the word's mean": lambda x, h, t, rows: habits.by_word[words[t, rows]],
        "h's part at its mean": lambda x, h, t, rows: paper_rule(x, habits.from_h, t),
        "x's part at its mean": lambda x, h, t, rows: paper_rule(habits.from_x, h, t),
    }
    for k in KEPT_PAIRS:
        most, varied = habits.turning[:k], habits.varying[:k]
        rules[f"only the {k} most turning pairs turn"] = where(most, paper, off)
        rules[f"the {k} most turning pairs do not turn"] = where(most, off, paper)
        rules[f"all but the {k} most varying pairs frozen"] = where(varied, paper, frozen)
        rules[f"the {k} most varying pairs frozen"] = where(varied, frozen, paper)
    return rules


@torch.no_grad()
def _accuracy_by_rule(
    model: QuestionAnswerer, examples: Examples, rules: dict[str, _Rule]
) -> float:
    right = 0
    try:
        for start in range(0, examples.rows, 250):
            rows = slice(start, start + 250)
            batch = examples.part(start, start + 250)
            for rnn, rule in rules.items():
                use_rule(
                    getattr(model, rnn), lambda x, h, t, rule=rule, rows=rows: rule(x, h, t, rows)
                )
            right += int((model(batch).argmax(-1) == batch.answer).sum())
    finally:
        for rnn in rules:
            undo(getattr(model, rnn))
    return right / examples.rows


def norm_through_time(steps: Steps, longest: int = 400) -> list[float]:
    """The mean norm of the memory at each position of a story."""
    positions = steps.positions.clamp(max=longest)
    count = torch.bincount(positions)
    total = torch.bincount(positions, steps.norms.double())
    means: Sequence[float] = (total / count)[:longest].tolist()
    return list(means)


def angle_beat(angles: Tensor, real: Tensor, lag: int) -> list[float]:
    """Per pair, how an angle goes with that of `lag` steps earlier.

    It is the correlation of what they are away from the pair's mean, round the circle. `angles` are
    ``[T, N, P]``, `real` says which steps count, ``[T, N]``.
    """
    away = angles.double() - circular_mean(angles[real].double())
    away = torch.remainder(away + math.pi, 2 * math.pi) - math.pi
    both = real[lag:] & real[:-lag]
    together = (away[lag:] * away[:-lag])[both].mean(0)
    return (together / (away[real] ** 2).mean(0)).tolist()


@torch.no_grad()
def step_to_step(model: QuestionAnswerer, examples: Examples) -> dict[str, object]:
    """How the memory changes from step to step, and what the model would say at the last ones.

    `similar` has the mean cosine between the memory and that of one to four steps earlier, `speaks`
    the mean probability that all answers of the task have together, at each of the last steps,
    `padding` the mean norm of the memory when the padding ends and the story begins, and `beat` how
    angles go with those of one and of two steps earlier.
    """
    layer = model.story_rnn
    read, context = layer_input(layer, model, examples)
    direction = rotcell.trace(layer, read, context=context)[0]
    memory, real = direction.state, (examples.story != PADDING).t()
    similar = [
        float(F.cosine_similarity(memory[k:], memory[:-k], dim=-1)[real[:-k]].mean())
        for k in range(1, 5)
    ]
    last = torch.softmax(model.dense(direction.output[-_LAST:]), dim=-1)
    speaks = last[..., examples.answer.unique()].sum(-1).mean(1).tolist()
    padded = ~real[0]  # rows with padding at all
    ends = (~real).sum(0) - 1
    at_end = memory[ends[padded], padded.nonzero()[:, 0]].norm(dim=-1)
    padding = float(at_end.mean()) if len(at_end) else None
    found: dict[str, object] = {"similar": similar, "speaks": speaks, "padding": padding}
    if direction.angles is not None:
        found["beat"] = [angle_beat(direction.angles, real, lag) for lag in (1, 2)]
    return found


def measure(
    untrained: QuestionAnswerer, model: QuestionAnswerer, train: Examples, test: Examples
) -> dict[str, object]:
    """All numbers of one run."""
    looked_at = test.part(0, STORIES)
    after = watch(model, looked_at)
    found: dict[str, object] = {"norm": norm_through_time(after), **step_to_step(model, looked_at)}
    if after.angles is None:
        return found
    before = watch(untrained, looked_at)
    found["histogram"] = {"before": histogram(before.angles), "after": histogram(after.angles)}
    found["saturated"] = {"before": saturated(before.angles), "after": saturated(after.angles)}
    found["turn"] = turn(after.angles).mean(0).tolist()
    found["explained"] = what_decides(after)
    found["explained before training"] = what_decides(before)
    found["ablations"] = ablations(model, train.part(0, STORIES), test)
    return found
