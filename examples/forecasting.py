"""Probabilistic forecasting: a distribution per step, sampled paths, and their coverage.

    python examples/forecasting.py     # under a minute on two cores

Daily sales of made-up shops: a weekly pattern of the shop's kind, a trend, and noise that grows
with the level. The kind is constant, so it enters as `context`, once per series and not per step.
"""

import argparse

import torch
from torch import Tensor, nn

from rotcell import RotLSTM

WEEK, KINDS = 7, 3

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--steps", type=int, default=400, help="steps of training")
parser.add_argument("--horizon", type=int, default=14, help="days to forecast")
parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")


def shops(count: int, days: int, seed: int) -> tuple[Tensor, Tensor]:
    """Series [days, count] and the kind of each shop, one-hot."""
    draw = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=draw)
    patterns = torch.tensor([[1.0, 1, 1, 1, 1.2, 1.6, 0.2], [1, 1, 1, 1, 1, 0.3, 0.3],
                             [0.5, 0.6, 0.7, 0.8, 1.4, 1.9, 1.7]])  # fmt: skip
    first = torch.randint(WEEK, (count,), generator=draw)  # the weekday of day 0 is not given
    day = torch.arange(days)[:, None]
    weekly = patterns[kind, (day + first) % WEEK]
    level = 5 + 20 * torch.rand(count, generator=draw)
    trend = 1 + 0.004 * torch.randn(count, generator=draw) * day
    noise = 1 + 0.15 * torch.randn(days, count, generator=draw)
    series = (level * trend.clamp_min(0.2) * weekly * noise).clamp_min(0)
    return series, nn.functional.one_hot(kind, KINDS).float()


class Forecaster(nn.Module):
    """The scaled value of a day goes in; mean and spread of the next day come out."""

    def __init__(self, hidden_size: int = 40) -> None:
        super().__init__()
        self.layer = RotLSTM(1 + KINDS, hidden_size)
        self.head = nn.Linear(hidden_size, 2)

    def forward(self, x: Tensor, kind: Tensor, state=None):
        output, state = self.layer(x.unsqueeze(-1), state, context=kind)
        mean, spread = self.head(output).unbind(-1)
        return torch.distributions.Normal(mean, nn.functional.softplus(spread) + 1e-3), state

    @torch.no_grad()
    def sample(self, history: Tensor, kind: Tensor, horizon: int, paths: int) -> Tensor:
        """Paths [paths, horizon, B]: each day is drawn, then read as the next input."""
        batch = history.shape[1]
        next_day, state = self(history, kind)
        state = tuple(s.repeat(1, paths, 1) for s in state)
        kinds = kind.repeat(paths, 1)
        x, days = next_day.sample((paths,))[:, -1].flatten(), []
        for _ in range(horizon):
            days.append(x.view(paths, batch))
            next_day, state = self(x[None], kinds, state)
            x = next_day.sample()[0]
        return torch.stack(days, dim=1)


def pinball(quantiles: Tensor, truth: Tensor, levels: Tensor) -> float:
    """Mean quantile loss: small if the whole distribution is right."""
    error = truth - quantiles
    levels = levels.view(-1, 1, 1)
    return torch.maximum(levels * error, (levels - 1) * error).mean().item()


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.quick:
        options.steps = 5
    days = 8 * WEEK
    series, kinds = shops(4096, days, seed=0)
    scale = series.mean(0, keepdim=True)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    for _ in range(options.steps):
        rows = torch.randint(series.shape[1], (128,))
        x = series[:, rows] / scale[:, rows]
        predicted, _ = model(x[:-1], kinds[rows])
        loss = -predicted.log_prob(x[1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    series, kinds = shops(256, days + options.horizon, seed=1)
    history, truth = series[:days], series[days:]
    scale = history.mean(0, keepdim=True)
    paths = model.eval().sample(history / scale, kinds, options.horizon, paths=100) * scale
    quantiles = paths.quantile(levels, dim=0)
    inside = ((truth >= quantiles[0]) & (truth <= quantiles[-1])).float().mean().item()
    # The baseline: the values of this weekday in the last five weeks.
    last = history.unfold(0, WEEK, WEEK)[-5:].movedim(-1, 1)
    weeks = -(-options.horizon // WEEK)
    naive = last.repeat(1, weeks, 1)[:, : options.horizon].quantile(levels, dim=0)
    print(f"{truth.shape[1]} unseen shops, {options.horizon} days ahead:")
    print(f"quantile loss of the same weekday before: {pinball(naive, truth, levels):.3f}")
    print(f"quantile loss of the model:               {pinball(quantiles, truth, levels):.3f}")
    print(f"{100 * inside:.0f} % of the days are inside the model's 90 % interval")


if __name__ == "__main__":
    main()
