"""Looks at an installed rotcell that was built with CUDA kernels. No GPU is needed.

To be run outside the clone, by the Python of the environment that rotcell is installed in.
"""

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import rotcell
from rotcell import _libraries
from rotcell.cuda.paths import has_cell
from rotcell.layers.layer import Layer
from rotcell.reference import CELLS

#: The layer of every cell that a GPU runs, by the name of its op. Others run on the reference.
LAYERS = {
    layer._cell.name: layer
    for layer in vars(rotcell).values()
    if isinstance(layer, type) and issubclass(layer, Layer) and hasattr(layer, "_cell")
    if has_cell(layer._cell.name)
}
SIGMOIDS = (False, 0, 0)  # not in reverse, sigmoid for gates and angles


class Recorder(TorchDispatchMode):
    """Keeps the names of rotcell's ops that are called, and on which devices."""

    def __init__(self):
        super().__init__()
        self.calls = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "rotcell":
            devices = {a.device.type for a in args if isinstance(a, torch.Tensor)}
            overload = func._schema.overload_name
            self.calls.add((func._schema.name + ("." + overload if overload else ""), *devices))
        return func(*args, **(kwargs or {}))


def ops():
    """The ops for GPUs: biases of rows, int8 weights and cells that see rows are for the CPU."""
    names = torch._C._dispatch_get_all_op_names()
    of_cells = {f"rotcell::{cell}{suffix}" for cell in CELLS for suffix in ("", "_backward")}
    return sorted(n for n in names if n.removesuffix(".extended") in of_cells)


def check_registration():
    found = ops()
    assert LAYERS.keys() == {name for name in CELLS if has_cell(name)}, LAYERS
    # Forward and backward, each with and without what few calls use.
    assert len(found) == 4 * len(CELLS), found
    for name in found:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"), f"{name}: no kernel"
    print(f"Registered for CUDA: {', '.join(found)}")


def check_fake_tensors():
    """Layers, and the backward ops, on tensors that only pretend to be on a GPU.

    The backward ops are called by hand, without what few calls use: torch's autograd asks the
    driver for the device.
    """
    recorder = Recorder()
    with FakeTensorMode(), recorder:
        for name, layer_type in LAYERS.items():
            layer = layer_type(3, 5, num_layers=2, bidirectional=True, device="cuda")
            x, resets = torch.empty(7, 2, 3, device="cuda"), torch.ones(7, 2, device="cuda").bool()
            for output, _ in (layer(x), layer(x, resets=resets)):
                assert (output.device.type, *output.shape) == ("cuda", 7, 2, 10), output
            check_backward(name, layer)
    of_layers = {f"rotcell::{cell}{suffix}" for cell in LAYERS for suffix in ("", "_backward")}
    traced = {name for name in ops() if name.partition(".")[0] in of_layers}
    traced -= {name for name in traced if name.endswith("_backward.extended")}
    assert recorder.calls == {(name, "cuda") for name in traced}, recorder.calls
    print(f"Traced with fake CUDA tensors: {len(traced)} of them")


def check_backward(name, layer):
    """Gradients must have the shapes of what they are gradients of."""
    cell = CELLS[name]
    states = [torch.empty(2, 5, device="cuda") for _ in cell.states]
    biases = [layer.bias_ih_l0, layer.bias_hh_l0]
    inputs = [torch.empty(14, 3, device="cuda"), *states, layer.weight_ih_l0, layer.weight_hh_l0]
    projection = [None] if cell.can_project else []
    with torch.no_grad():
        forward, backward = (getattr(torch.ops.rotcell, op) for op in (name, f"{name}_backward"))
        out, *others = forward(*inputs, *biases, *projection, None, *SIGMOIDS, True)
        grads = [torch.empty_like(out), *(None for _ in states)]
        saved = others[len(states) :]
        found = backward(*grads, *inputs, *projection, None, *SIGMOIDS, out, *saved, True, True)
    for gradient, of in zip(found, [*inputs, biases[0]], strict=False):
        assert (gradient.device.type, gradient.shape) == ("cuda", of.shape), (gradient, of)


def check_export():
    for name, layer_type in LAYERS.items():
        with FakeTensorMode():
            layer = layer_type(3, 5, device="cuda")
            program = torch.export.export(layer, (torch.empty(7, 2, 3, device="cuda"),))
        called = [node.target for node in program.graph.nodes if node.op == "call_function"]
        assert any(str(target).startswith(f"rotcell.{name}") for target in called), called
        print(f"Exported with fake CUDA tensors: {layer_type.__name__}")


def error_of(function):
    try:
        function()
    except (AssertionError, RuntimeError) as error:
        return type(error), str(error)
    return None


def check_missing_driver():
    """A layer on a GPU that is not there fails as a tensor of torch does."""
    expected = error_of(lambda: torch.empty(1, device="cuda"))
    for layer_type in LAYERS.values():
        assert error_of(lambda create=layer_type: create(3, 5, device="cuda")) == expected
    print(f"A layer on 'cuda' here: {expected[1].splitlines()[0] if expected else 'works'}")


def check_c_functions():
    """What the library reports for a GPU that does not exist."""
    if not torch.cuda.is_available():
        assert not _libraries.cuda_has_code(0)
        try:
            _libraries.cuda_device(0)
        except ValueError as error:
            print(f"GPU 0 here: {error}")
        else:
            raise AssertionError("a GPU that torch does not see")
    for path in (*_libraries.CUDA_PATHS, None):
        _libraries.force_cuda_path(path)
        _libraries.force_cuda_path_of_thread(path)
    stepwise = (0, 0, torch.float32, False, False)
    assert _libraries.cuda_can_run(*stepwise)
    _libraries.switch_off_cuda(0, 0, torch.float32, "stepwise")
    assert not _libraries.cuda_can_run(*stepwise)
    _libraries.switch_on_all_cuda()
    assert rotcell.cuda.self_check.enabled()


def main():
    print(rotcell.__file__)
    print(rotcell.info.describe())
    assert rotcell.build_info()["cuda"], "built without CUDA kernels"
    assert _libraries.has_cuda(), "the CUDA library is not loaded"
    check_c_functions()
    check_registration()
    check_fake_tensors()
    check_export()
    check_missing_driver()


if __name__ == "__main__":
    main()
