"""The plain LSTM and GRU of onnxruntime, for inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def make_function(cell: str, x: np.ndarray, hidden_size: int, threads: int) -> Callable[[], Any]:
    """Build a call that runs the sequence x ``[T, B, input]`` through one layer on the CPU."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    input_size = x.shape[2]
    rows = {"LSTM": 4, "GRU": 3}[cell] * hidden_size
    shapes = {"W": (1, rows, input_size), "R": (1, rows, hidden_size), "B": (1, 2 * rows)}
    generator = np.random.default_rng(0)
    bound = hidden_size**-0.5
    weights = [
        numpy_helper.from_array(generator.uniform(-bound, bound, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    # nn.GRU applies the reset after the matmul; ONNX's GRU needs an attribute for that.
    extra: dict[str, Any] = {"linear_before_reset": 1} if cell == "GRU" else {}
    node = helper.make_node(cell, ["x", "W", "R", "B"], ["out"], hidden_size=hidden_size, **extra)
    graph = helper.make_graph(
        [node],
        cell,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Its threads would otherwise keep a core busy while others are timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return lambda: session.run(["out"], {"x": x})
