"""What is measured of a trained model: its angles, what decides them, what they are good for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from variants import paper_rule, undo, use_rule

import rotcell
from rotcell.babi.model import QuestionAnswerer
from rotcell.babi.vectorise import PADDING, Examples
from rotcell.tracing.summary import SATURATED, turn

BINS = 64  # of a histogram of angles
STORIES = 300  # whose angles are looked at; accuracies are of the whole test set
KEPT_PAIRS = (1, 2, 4, 8, 16)
_BATCH = 100


@dataclass
class Steps:
    """Tokens of many sequences, padding left out."""

    angles: Tensor | None  # [N, P]
    norms: Tensor  # [N], of the memory
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
        direction = rotcell.trace(layer, _input_of(layer, model, batch))[0]
        angles = direction.angles
        found.append(
            Steps(
                None if angles is None else angles[real],
                direction.memory.norm(dim=-1)[real],
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


@torch.no_grad()
def _input_of(layer: nn.Module, model: QuestionAnswerer, batch: Examples) -> Tensor:
    """What a layer of the model gets to read."""
    inputs: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    try:
        model(batch)
    finally:
        handle.remove()
    return inputs[0]


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
    """Share of variance explained, per pair, by what one knows about a step."""
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
    """Test accuracy with the angles of both layers changed as said; means are those of training."""
    watched = {rnn: watch(model, train, rnn) for rnn in ("question_rnn", "story_rnn")}
    found = {"as trained": accuracy(model, test)}
    for name, rules in _rules(watched):
        with_rules = {rnn: make(test_words(test, rnn)) for rnn, make in rules.items()}
        found[name] = _accuracy_by_rule(model, test, with_rules)
    return found


def test_words(examples: Examples, rnn: str) -> Tensor:
    """[T, N]"""
    return (examples.story if rnn == "story_rnn" else examples.question).t()


_Rule = Callable[[Tensor, Tensor, int, slice], Tensor]  # the last: which rows of the test set
_MakeRule = Callable[[Tensor], _Rule]


def _rules(watched: dict[str, Steps]) -> Iterator[tuple[str, dict[str, _MakeRule]]]:
    def for_both(make: Callable[[Steps], _MakeRule]) -> dict[str, _MakeRule]:
        return {rnn: make(steps) for rnn, steps in watched.items()}

    yield (
        "plain loop, as trained",
        for_both(lambda _: lambda words: lambda x, h, t, r: paper_rule(x, h, t)),
    )
    yield "rotation off", for_both(lambda _: lambda words: lambda x, h, t, r: torch.zeros_like(x))
    yield "frozen at the pair's mean", for_both(_frozen)
    yield "frozen at the word's mean", for_both(_frozen_by_word)
    for count in KEPT_PAIRS:
        yield f"only the {count} most turning pairs", for_both(lambda s, k=count: _only(s, k, True))
    for count in KEPT_PAIRS:
        yield (
            f"all but the {count} most turning pairs",
            for_both(lambda s, k=count: _only(s, k, False)),
        )


def _frozen(steps: Steps) -> _MakeRule:
    mean = circular_mean(steps.angles)
    return lambda words: lambda x, h, t, rows: mean.expand_as(x)


def _frozen_by_word(steps: Steps) -> _MakeRule:
    """A word that training never showed, and padding, have the mean of all."""
    table = circular_mean(steps.angles).repeat(int(steps.words.max()) + 1, 1)
    for word in steps.words.unique().tolist():
        table[word] = circular_mean(steps.angles[steps.words == word])

    def of_test(words: Tensor) -> _Rule:
        known = words.clamp(max=len(table) - 1)
        return lambda x, h, t, rows: table[known[t, rows]]

    return of_test


def _only(steps: Steps, count: int, kept: bool) -> _MakeRule:
    most = turn(steps.angles).mean(0).topk(min(count, steps.angles.shape[1])).indices
    acts = torch.full((steps.angles.shape[1],), float(not kept))
    acts[most] = float(kept)
    return lambda words: lambda x, h, t, rows: acts * paper_rule(x, h, t)


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


def measure(
    untrained: QuestionAnswerer, model: QuestionAnswerer, train: Examples, test: Examples
) -> dict[str, object]:
    """All numbers of one run."""
    looked_at = test.part(0, STORIES)
    after = watch(model, looked_at)
    found: dict[str, object] = {"norm": norm_through_time(after)}
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
