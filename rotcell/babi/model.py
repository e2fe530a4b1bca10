"""The question answering model of the paper (its figure 2).

question words -> embedding -> dropout -> RNN -> last output q
story words    -> embedding -> dropout -> [word, q] -> RNN -> last output -> dropout -> dense
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from rotcell.babi.keras_init import init_dense, init_embedding, init_recurrent
from rotcell.babi.settings import RunSettings
from rotcell.babi.vectorise import Examples, Share
from rotcell.layers import RotGRU, RotLSTM

LAYERS: Final[dict[str, Callable[[int, int], nn.Module]]] = {
    "lstm": nn.LSTM,
    "rotlstm": RotLSTM,
    "gru": nn.GRU,
    "rotgru": RotGRU,
}


class JointDropout(nn.Module):
    """Dropout whose mask does not depend on how many processes share a batch.

    Given a share, it draws the mask of the joint batch and keeps the share's batch.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, share: Share | None) -> Tensor:
        """`x` has its batch in the last dimension but one."""
        if share is None or not self.training:
            return F.dropout(x, self.p, self.training)
        mask = F.dropout(x.new_ones(*x.shape[:-2], share.joint, x.shape[-1]), self.p)
        return x * mask[..., share.start : share.stop, :]


class QuestionAnswerer(nn.Module):
    """Scores every word of the dictionary as the answer."""

    def __init__(self, words: int, settings: RunSettings) -> None:
        super().__init__()
        size, width = settings.state_size, settings.embedding
        make = LAYERS[settings.cell]
        self.packed = settings.packed
        self.story_embedding = nn.Embedding(words, width)
        self.question_embedding = nn.Embedding(words, width)
        self.question_rnn = make(width, size)
        self.story_rnn = make(width + size, size)
        self.dense = nn.Linear(size, words)
        self.dropout = JointDropout(settings.dropout)

        for embedding in (self.story_embedding, self.question_embedding):
            init_embedding(embedding)
        for rnn in (self.question_rnn, self.story_rnn):
            init_recurrent(rnn, forget_bias=settings.cell in ("lstm", "rotlstm"))
        init_dense(self.dense)

    def forward(self, batch: Examples, share: Share | None = None) -> Tensor:
        """Scores [N, words]; softmax makes probabilities of them."""
        asked = self.dropout(self.question_embedding(batch.question.t()), share)  # [T, N, width]
        q = self._last(self.question_rnn, asked, batch.question_lengths)
        told = self.dropout(self.story_embedding(batch.story.t()), share)
        told = torch.cat([told, q.to(told.dtype).expand(told.shape[0], *q.shape)], dim=-1)
        last = self._last(self.story_rnn, told, batch.story_lengths)
        scores: Tensor = self.dense(self.dropout(last, share))
        return scores

    def _last(self, rnn: nn.Module, x: Tensor, lengths: Tensor) -> Tensor:
        """The last output of every row, [N, size]."""
        if self.packed:
            _, state = rnn(pack_padded_sequence(x, lengths, enforce_sorted=False))
        else:
            _, state = rnn(x)
        last: Tensor = state[0] if isinstance(state, tuple) else state
        return last[0]
