"""Released packages over a model with one of our layers. What is not installed is skipped."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from helpers import LSTM, PLAIN_LSTM, Kind, assert_near
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import rotcell


class Classifier(nn.Module):
    def __init__(self, rnn: type = rotcell.RotLSTM) -> None:
        super().__init__()
        self.rnn = rnn(3, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(x)
        return self.head(output[:, -1])


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 5, 3)
    return x, (x[:, 0, 0] > 0).long()


def test_torchinfo_shows_every_parameter(kind: Kind) -> None:
    torchinfo = pytest.importorskip("torchinfo")
    model = Classifier(kind.layer)
    summary = torchinfo.summary(model, input_size=(2, 5, 3), verbose=0)
    assert summary.total_params == sum(p.numel() for p in model.parameters())
    assert type(model.rnn).__name__ in str(summary)


def train_by_hand(model: nn.Module, steps: int) -> None:
    x, y = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def assert_same_weights(model: nn.Module, expected: nn.Module) -> None:
    for found, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        assert_near(found, wanted)


def test_accelerate_trains_as_a_loop_by_hand_does() -> None:
    accelerate = pytest.importorskip("accelerate")
    model, twin = Classifier(), Classifier()
    twin.load_state_dict(model.state_dict())
    torch.manual_seed(1)
    train_by_hand(twin, 3)

    torch.manual_seed(1)
    x, y = data()
    accelerator = accelerate.Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(prepared(x), y))
        optimizer.step()
    assert_same_weights(model, twin)


@pytest.mark.filterwarnings("ignore")
def test_lightning_trains_saves_and_restores(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Classifier()

        def training_step(self, batch: Any, _: int) -> Tensor:
            x, y = batch
            return F.cross_entropy(self.model(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module, twin = Module(), Classifier()
    twin.load_state_dict(module.model.state_dict())
    torch.manual_seed(1)
    train_by_hand(twin, 3)
    torch.manual_seed(1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data()), batch_size=8)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, loader)
    assert_same_weights(module.model, twin)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    assert_same_weights(Module.load_from_checkpoint(tmp_path / "last.ckpt").model, twin)


def train_a_share(rank: int, processes: int, folder: str) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=processes
    )
    model = Classifier()
    model.load_state_dict(torch.load(f"{folder}/before.pt"))
    parallel = DistributedDataParallel(model)
    torch.manual_seed(1)
    x, y = (t.chunk(processes)[rank] for t in data())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(parallel(x), y).backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), f"{folder}/after.pt")
    # Skip all destructors: torch's joins its thread while it holds the
    # interpreter's lock, which that thread may need to free the last gradients, so sometimes both
    # wait forever.
    os._exit(0)


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this torch is built without torch.distributed")
    model = Classifier()
    torch.save(model.state_dict(), tmp_path / "before.pt")
    torch.manual_seed(1)
    train_by_hand(model, 3)
    torch.multiprocessing.spawn(train_a_share, (2, str(tmp_path)), nprocs=2)
    after = Classifier()
    after.load_state_dict(torch.load(tmp_path / "after.pt"))
    assert_same_weights(after, model)


def as_ours(lstm: nn.LSTM, kind: Kind) -> nn.Module:
    """One of our layers with the weights of an nn.LSTM, which computes what that computes."""
    if kind is LSTM:
        return rotcell.RotLSTM.from_lstm(lstm)
    sizes = lstm.input_size, lstm.hidden_size, lstm.num_layers
    with torch.random.fork_rng():  # the program's own random numbers stay what they were
        layer = rotcell.LSTM(*sizes, batch_first=lstm.batch_first, dropout=lstm.dropout)
    layer.load_state_dict(lstm.state_dict())
    return layer


@pytest.mark.parametrize("kind", [LSTM, PLAIN_LSTM], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_recurrent_ppo_learns_as_with_nn_lstm(kind: Kind) -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")

    def learned(swap: bool) -> dict[str, Tensor]:
        agent = sb3_contrib.RecurrentPPO(
            "MlpLstmPolicy",
            "CartPole-v1",
            n_steps=32,
            batch_size=32,
            n_epochs=2,
            seed=0,
            policy_kwargs={"lstm_hidden_size": 8, "net_arch": [8]},
            device="cpu",
        )
        policy = agent.policy
        if swap:
            for name in ("lstm_actor", "lstm_critic"):
                setattr(policy, name, as_ours(getattr(policy, name), kind))
            policy.optimizer = policy.optimizer_class(
                policy.parameters(), lr=agent.learning_rate, **policy.optimizer_kwargs
            )
        agent.learn(64)
        return {name: value for name, value in policy.named_parameters() if "lstm" not in name}

    expected = learned(swap=False)
    for name, value in learned(swap=True).items():
        assert_near(value, expected[name])


@pytest.mark.parametrize("kind", [LSTM, PLAIN_LSTM], ids=str)
@pytest.mark.filterwarnings("ignore")
def test_deepar_forecasts_match_nn_lstm(kind: Kind, tmp_path: Path) -> None:
    deepar = pytest.importorskip("gluonts.torch.model.deepar")
    from gluonts.dataset.common import ListDataset

    wave = [math.sin(0.3 * step) + 2 for step in range(80)]
    data = ListDataset([{"start": "2020-01-01", "target": wave}], freq="D")

    class Estimator(deepar.DeepAREstimator):  # type: ignore[misc, name-defined]
        swap = False

        def create_lightning_module(self) -> Any:
            module = super().create_lightning_module()
            if self.swap:
                module.model.rnn = as_ours(module.model.rnn, kind)
            return module

    def forecast(swap: bool) -> Tensor:
        torch.manual_seed(0)
        random.seed(0)
        numpy.random.seed(0)
        estimator = Estimator(
            freq="D",
            prediction_length=4,
            context_length=8,
            hidden_size=8,
            batch_size=4,
            num_batches_per_epoch=2,
            num_parallel_samples=5,
            trainer_kwargs={
                "max_epochs": 1,
                "accelerator": "cpu",
                "default_root_dir": tmp_path,
                "logger": False,
                "enable_progress_bar": False,
            },
        )
        estimator.swap = swap
        predictor = estimator.train(data)
        torch.manual_seed(0)
        return torch.as_tensor(next(iter(predictor.predict(data))).samples)

    assert_near(forecast(swap=True), forecast(swap=False))
