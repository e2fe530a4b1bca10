"""Every row of the compatibility table in the guide has a test."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "guides" / "from-nn-lstm.md"

#: First column of the table, and the tests that show what the row says.
TESTS: dict[str, tuple[str, ...]] = {
    "`state_dict` of `nn.LSTM` into `rotcell.LSTM`, and back": (
        "outside/test_programs.py::test_a_checkpoint_of_nn_lstm_and_back",
    ),
    "weights of `nn.LSTM` into `RotLSTM`": ("test_drop_in.py",),
    "weights of `nn.GRU`": (
        "test_torch_gru.py",
        "test_drop_in.py::test_gru_is_nn_gru_where_the_reset_cannot_matter",
    ),
    "initialization by quarters, `bias[n // 4 : n // 2]`, `weight.chunk(4)`": (
        "outside/test_programs.py::test_initialization_gate_by_gate",
    ),
    "forget bias": (
        "outside/test_programs.py::test_the_option_for_the_forget_bias_shifts_that_gate_alone",
    ),
    "`spectral_norm`, `weight_norm`, parametrizations": (
        "outside/test_programs.py::test_parametrized_weights",
    ),
    "weights replaced at every forward (dropout of weights)": (
        "outside/test_programs.py::test_dropout_of_recurrent_weights",
    ),
    "`torch.func.functional_call`": (
        "outside/test_programs.py::test_functional_call_runs_with_other_weights",
    ),
    "`isinstance(m, nn.RNNBase)`, `mode`, `all_weights`, `flatten_parameters`": (
        "test_lstm_habits.py",
        "outside/test_programs.py::test_libraries_that_look_for_rnns_find_ours",
    ),
    "`isinstance(m, nn.LSTM)`": ("test_lstm_habits.py::test_layers_are_rnns_to_isinstance",),
    "`copy.deepcopy`, pickle": (
        "outside/test_programs.py::test_copies_of_a_model_are_apart_from_it",
    ),
    "`torch.load` of a whole model, `weights_only=True`": (
        "outside/test_programs.py::test_a_whole_model_is_loaded_with_the_safe_default",
    ),
    "packed sequences": (
        "outside/test_programs.py::test_a_tagger_learns_and_padding_does_not_matter",
    ),
    "LBFGS and other optimizers with closures": ("outside/test_programs.py::test_lbfgs_on_a_sine",),
    "truncated backpropagation, `output.detach_()`": (
        "outside/test_programs.py::test_truncated_backpropagation",
    ),
    "DistributedDataParallel": ("outside/test_packages.py::test_two_processes_train_as_one_does",),
    "Lightning, accelerate": ("outside/test_packages.py",),
    "episodes that end inside a sequence (reinforcement learning)": (
        "test_state_hooks.py::test_every_episode_is_as_if_it_were_alone",
    ),
    "the cell state c at every step": (
        "test_state_hooks.py::test_cells_are_the_cell_state_of_every_prefix",
    ),
    "features that are the same at every step (a question, a speaker)": ("test_context.py",),
    "recurrent (variational) dropout": (
        "test_state_hooks.py::test_recurrent_dropout_is_an_lstm_with_masked_weights",
    ),
    "zoneout": ("test_state_hooks.py::test_zoneout_keeps_units_as_they_were_in_training",),
    "resets, dropout, zoneout with compile, export, autocast, fp16/bf16, `rotcell.trace`": (
        "test_state_hooks.py",
    ),
    "recurrent PPO (sb3-contrib)": (
        "outside/test_packages.py::test_recurrent_ppo_learns_as_with_nn_lstm",
    ),
    "DeepAR (GluonTS)": ("outside/test_packages.py::test_deepar_forecasts_match_nn_lstm",),
    "double backward, `torch.func`, forward-mode AD": ("test_gradients.py", "test_transforms.py"),
    "`torch.compile(fullgraph=True)`": (
        "outside/test_graphs.py::test_compiled_in_one_graph",
        "test_transforms.py",
    ),
    "`torch.export`": ("outside/test_graphs.py::test_exported_with_dynamic_length_and_batch",),
    "`torch.export` of packed sequences": (
        "outside/test_graphs.py::test_export_of_a_packed_sequence_names_the_alternative",
    ),
    "ONNX": ("outside/test_onnx.py",),
    "`torch.jit.trace`": ("outside/test_graphs.py::test_a_trace_runs_and_trains_at_any_shape",),
    "`torch.jit.script`": ("outside/test_graphs.py::test_scripting_names_the_alternatives",),
    "`torch.fx.symbolic_trace`": (
        "outside/test_graphs.py::test_fx_keeps_layers_and_cells_as_one_node",
    ),
    "`torch.utils.flop_counter`": (
        "outside/test_programs.py::test_flops_are_counted",
        "test_lstm_habits.py",
    ),
    "torchinfo": ("outside/test_packages.py::test_torchinfo_shows_every_parameter",),
    "`quantize_dynamic`": (
        "test_quantized.py::test_only_our_layers_are_quantized_and_the_original_stays",
        "test_quantized.py::test_torchs_own_function_does_the_same",
        "outside/test_programs.py::test_dynamic_quantization_leaves_our_layers_in_float",
    ),
}


def test_every_row_has_a_test() -> None:
    section = PAGE.read_text().split("\n## Compatibility\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert [row for row in rows if not row.startswith("**")] == list(TESTS)


@pytest.mark.parametrize("test", sorted({test for tests in TESTS.values() for test in tests}))
def test_the_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    text = (HERE / file).read_text()
    assert not name or f"def {name}(" in text
