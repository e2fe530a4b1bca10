"""RotLSTM and RotGRU as a jitted scan in JAX, as one would write them there."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np


def limit_threads(threads: int) -> None:
    """Have JAX, which is not yet imported, use so many threads on the CPU."""
    os.environ["NPROC"] = str(threads)
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


def _recurrence(cell: str, hidden_size: int) -> Callable[..., Any]:
    """The outputs of a RotLSTM or RotGRU, from x and its weights."""
    import jax.numpy as jnp
    from jax import lax
    from jax.nn import sigmoid

    def rotate(d: Any, angle_preactivation: Any) -> Any:
        u = 2 * math.pi * sigmoid(angle_preactivation)
        cos, sin = jnp.cos(u), jnp.sin(u)
        paired = 2 * u.shape[-1]
        first, second = d[:, 0:paired:2], d[:, 1:paired:2]
        turned = jnp.stack([cos * first - sin * second, sin * first + cos * second], axis=-1)
        return jnp.concatenate([turned.reshape(d.shape[0], paired), d[:, paired:]], axis=-1)

    def split(a: Any, gates: int) -> list[Any]:
        return jnp.split(a, [hidden_size * k for k in range(1, gates + 1)], axis=-1)

    def lstm(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        def step(state: Any, a: Any) -> Any:
            h, c = state
            i, f, g, o, rot = split(a + h @ w_hh.T, 4)
            c = rotate(sigmoid(f) * c + sigmoid(i) * jnp.tanh(g), rot)
            h = sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], hidden_size), x.dtype)
        return lax.scan(step, (zeros, zeros), x @ w_ih.T + (b_ih + b_hh))[1]

    def gru(x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        r_rows, z_rows, n_rows, rot_rows = jnp.split(w_hh, [hidden_size * k for k in (1, 2, 3)])
        from_h = jnp.concatenate([r_rows, z_rows, rot_rows])

        def step(h: Any, a: Any) -> Any:
            r_x, z_x, n_x, rot_x = split(a, 3)
            r_h, z_h, rot_h = split(h @ from_h.T, 2)
            z = sigmoid(z_x + z_h)
            turned = rotate(h * sigmoid(r_x + r_h), rot_x + rot_h)
            n = jnp.tanh(n_x + turned @ n_rows.T)
            h = (1 - z) * h + z * n
            return h, h

        zeros = jnp.zeros((x.shape[1], hidden_size), x.dtype)
        return lax.scan(step, zeros, x @ w_ih.T + (b_ih + b_hh))[1]

    return lstm if cell == "LSTM" else gru


def make_function(
    cell: str, train: bool, x: np.ndarray, grad: np.ndarray, weights: list[np.ndarray]
) -> Callable[[], Any]:
    """Build a call that runs a sequence and, in training, the gradients of x and the weights.

    Args:
        cell: "LSTM" or "GRU".
        train: whether to compute gradients.
        x: ``[T, B, input]``.
        grad: ``[T, B, H]``, gradient of the output.
        weights: w_ih, w_hh, b_ih, b_hh of the layer.

    Returns:
        A function that gives the output and, in training, the gradients of x and of the weights.
    """
    import jax
    import jax.numpy as jnp

    forward = _recurrence(cell, weights[1].shape[1])

    def forward_and_backward(grad: Any, *inputs: Any) -> Any:
        out, pull_back = jax.vjp(forward, *inputs)
        return out, pull_back(grad)

    inputs = [jnp.asarray(array) for array in (x, *weights)]
    if not train:
        jitted = jax.jit(forward)
        return lambda: jax.block_until_ready(jitted(*inputs))
    jitted = jax.jit(forward_and_backward)
    grad_of_out = jnp.asarray(grad)
    return lambda: jax.block_until_ready(jitted(grad_of_out, *inputs))
