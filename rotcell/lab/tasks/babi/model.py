"""The question answering model of the paper (its figure 2).

question words -> embedding -> dropout -> RNN -> last output q
story words    -> embedding -> dropout -> [word, q] -> RNN -> last output -> dropout -> dense
"""

from __future__ import annotations

import math
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import Examples
from rotcell.lab.training.processes import Share

EMBEDDING_BOUND: Final = 0.05
State = tuple[Tensor, ...]  # each [1, N, size], the output first
_FRACTION: Final = 1 << 53  # how many numbers from 0 to 1 a random double can be


class JointDropout(nn.Module):
    """Dropout whose mask does not depend on how many processes share a batch.

    Given a share, it draws the mask of the joint batch and keeps the share's batch.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, share: Share | None) -> Tensor:
        """`x` has its batch in the last dimension but one."""
        if not self.training or (share is None and _torch_is_best(x)):
            return F.dropout(x, self.p, self.training)
        rows = x.shape[-2] if share is None else share.joint
        joint = x.new_empty(*x.shape[:-2], rows, x.shape[-1])
        if _torch_is_best(x):
            mask = F.dropout(joint.fill_(1.0), self.p)
        else:
            mask = keep_mask(joint, self.p)
        return x * (mask if share is None else mask[..., share.start : share.stop, :])


def _torch_is_best(x: Tensor) -> bool:
    """Whether torch's own dropout is to be used: on GPUs, and for a compiler to look into."""
    return x.device.type != "cpu" or torch.compiler.is_compiling()


def keep_mask(like: Tensor, p: float) -> Tensor:
    """The mask of F.dropout for a tensor like this: 0 with probability p, else 1 / (1 - p).

    It is the mask that F.dropout draws on most CPUs, bit for bit, in half the time; but torch has
    another generator for CPUs of Intel, and this has not.
    """
    bits = torch.empty(like.shape, dtype=torch.int64).random_().bitwise_and_(_FRACTION - 1)
    mask = (bits < math.ceil((1 - p) * _FRACTION)).to(like.dtype)
    return mask.mul_(float(torch.ones((), dtype=like.dtype).div_(1 - p)))


class QuestionAnswerer(nn.Module):
    """Scores every word of the dictionary as the answer."""

    def __init__(self, words: int, settings: RunSettings) -> None:
        super().__init__()
        size, width = settings.state_size, settings.embedding
        cell = CELLS[settings.cell]
        self.packed = settings.packed
        self._takes_context = cell.takes_context
        self.story_embedding = nn.Embedding(words, width)
        self.question_embedding = nn.Embedding(words, width)
        self.question_rnn = cell.make(width, size, settings.gates, settings.angle)
        self.story_rnn = cell.make(width + size, size, settings.gates, settings.angle)
        self.dense = nn.Linear(size, words)
        self.dropout = JointDropout(settings.dropout)

        for embedding in (self.story_embedding, self.question_embedding):
            init_embedding(embedding)
        for rnn in (self.question_rnn, self.story_rnn):
            init_recurrent(rnn, forget_bias=cell.forget_bias)
        init_dense(self.dense)

    def forward(self, batch: Examples, share: Share | None = None) -> Tensor:
        """Scores [N, words]; softmax makes probabilities of them."""
        question_lengths = batch.question_lengths if self.packed else None
        story_lengths = batch.story_lengths if self.packed else None
        q = self.ask(batch.question, question_lengths, share)
        return self.answer(self.read(batch.story.t(), q, None, story_lengths, share), share)

    def ask(
        self, question: Tensor, lengths: Tensor | None = None, share: Share | None = None
    ) -> Tensor:
        """What questions [N, words] mean, [N, size]; their real lengths, if padded behind."""
        asked = self.dropout(self.question_embedding(question.t()), share)  # [T, N, width]
        return _run(self.question_rnn, asked, None, lengths)[0][0]

    def read(
        self,
        story: Tensor,
        q: Tensor,
        before: State | None = None,
        lengths: Tensor | None = None,
        share: Share | None = None,
    ) -> State:
        """The state after words [T, N] that are read with the questions in mind."""
        words = self.dropout(self.story_embedding(story), share)
        if self._takes_context:
            return _run(self.story_rnn, words, before, lengths, context=q.to(words.dtype))
        words = torch.cat([words, q.to(words.dtype).expand(words.shape[0], *q.shape)], dim=-1)
        return _run(self.story_rnn, words, before, lengths)

    def answer(self, after: State, share: Share | None = None) -> Tensor:
        """Scores [N, words], from the state after the story."""
        scores: Tensor = self.dense(self.dropout(after[0][0], share))
        return scores


def _run(
    rnn: nn.Module, x: Tensor, before: State | None, lengths: Tensor | None, **options: Tensor
) -> State:
    """The state after x [T, N, width]; rows have these lengths, without them all words count."""
    sequence = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
    initial = before if before is None or len(before) > 1 else before[0]
    _, after = rnn(sequence, initial, **options)
    return after if isinstance(after, tuple) else (after,)


# Starting weights as Keras 2 draws them; assumed of the paper's models, which it does not describe.


def init_embedding(layer: nn.Embedding) -> None:
    """Uniform in ±0.05, the row of the padding included."""
    nn.init.uniform_(layer.weight, -EMBEDDING_BOUND, EMBEDDING_BOUND)


def init_dense(layer: nn.Linear) -> None:
    """Glorot-uniform weights, no bias."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def init_recurrent(layer: nn.Module, *, forget_bias: bool) -> None:
    """Glorot-uniform input weights, orthogonal recurrent ones, zero bias, 1 for the forget gate.

    Keras 2 keeps the gates of a layer in one kernel and draws that as a whole; so the angles of a
    rotating cell, which are further rows of it, share in the same draw.

    Keras has one bias where torch has two. Adam moves both by the same step, so together they
    would learn at twice the rate: `bias_hh` is held at 0 and `bias_ih` is the one bias.
    """
    weights = dict(layer.named_parameters())
    nn.init.xavier_uniform_(weights["weight_ih_l0"])
    nn.init.orthogonal_(weights["weight_hh_l0"])
    nn.init.zeros_(weights["bias_ih_l0"])
    nn.init.zeros_(weights["bias_hh_l0"])
    weights["bias_hh_l0"].requires_grad_(False)
    if forget_bias:
        size = weights["weight_hh_l0"].shape[1]
        with torch.no_grad():
            weights["bias_ih_l0"][size : 2 * size] = 1.0
