"""torch.compile, torch.export, torch.func, forward-mode AD, use_reference, other devices."""

import threading
import warnings

import pytest
import torch
from helpers import KINDS, assert_all_near, assert_near
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, jvp, vmap

import rotcell
from rotcell import _libraries
from rotcell.ops import availability
from rotcell.reference import Cell


@pytest.fixture(params=KINDS, ids=str)
def kind(request):
    return request.param


@pytest.fixture
def layer(kind):
    torch.manual_seed(0)
    return kind.layer(3, 5, num_layers=2, bidirectional=True, dtype=torch.float64)


def sequences(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, 3, dtype=torch.float64)


class Graphs:
    """A compiler backend that keeps the graphs it is given and runs them as they are."""

    def __init__(self):
        self.seen = []

    def __call__(self, module, inputs):
        self.seen.append(module)
        return module.forward


def test_compile_captures_one_graph_whose_size_does_not_depend_on_time(layer):
    torch._dynamo.reset()
    graphs = Graphs()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=graphs)
    for steps in (4, 7, 300):
        x = sequences(steps, 2)
        assert_near(compiled(x)[0], layer(x)[0])
    assert len(graphs.seen) == 1


def test_compile_does_not_recompile_for_each_length(layer):
    torch._dynamo.reset()
    graphs = Graphs()
    compiled = torch.compile(layer, fullgraph=True, backend=graphs)
    for steps in (4, 7, 9, 30, 300):
        compiled(sequences(steps, 2))
    assert len(graphs.seen) <= 2  # the first length as a constant, then any


def test_compiled_training_gives_the_same_gradients(layer):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for steps in (4, 9):
        x = sequences(steps, 2).requires_grad_()
        targets = [x, *layer.parameters()]
        actual = torch.autograd.grad(compiled(x)[0].square().sum(), targets)
        expected = torch.autograd.grad(layer(x)[0].square().sum(), targets)
        assert_all_near(actual, expected)


def test_inductor_compiles_a_layer(kind):
    torch._dynamo.reset()
    model = torch.nn.Sequential(kind.layer(3, 5))
    compiled = torch.compile(model, fullgraph=True)
    x = torch.randn(4, 2, 3)
    out, _ = compiled(x)
    out.sum().backward()
    assert_near(out, model(x)[0], tolerance=1e-6)


def test_the_attribute_of_constants_is_torchs():
    def function(): ...

    mark = vars(torch.compiler.assume_constant_result(function))
    assert mark
    for marked in (availability.has_kernels, availability.kernels_work):
        assert mark.items() <= vars(marked).items()


def test_export_with_dynamic_time(layer):
    steps = torch.export.Dim("steps", min=1, max=1 << 20)
    with torch.no_grad():
        program = torch.export.export(layer, (sequences(4, 2),), dynamic_shapes=({0: steps},))
    names = [str(node.target) for node in program.graph.nodes]
    assert sum(name.startswith("rotcell.") for name in names) == 4  # layers * directions
    for count in (1, 4, 50):
        x = sequences(count, 2)
        assert_near(program.module()(x)[0], layer(x)[0])


def test_vmap_over_inputs(layer):
    xs = sequences(3, 4, 2)
    actual = vmap(lambda x: layer(x)[0])(xs)
    assert_near(actual, torch.stack([layer(x)[0] for x in xs]))


def test_vmap_over_weights(kind):
    models = [kind.layer(3, 5, dtype=torch.float64) for _ in range(3)]
    names = [name for name, _ in models[0].named_parameters()]
    stacked = {n: torch.stack([getattr(m, n) for m in models]).detach() for n in names}
    x = sequences(4, 2)
    actual = vmap(lambda p: functional_call(models[0], p, (x,))[0])(stacked)
    assert_near(actual, torch.stack([m(x)[0] for m in models]))


def test_gradients_per_sample_match_single_samples(layer):
    parameters = dict(layer.named_parameters())
    xs = sequences(3, 4, 2)

    def loss(p, x):
        return functional_call(layer, p, (x,))[0].square().sum()

    per_sample = vmap(grad(loss), (None, 0))(parameters, xs)
    for k, x in enumerate(xs):
        expected = torch.autograd.grad(layer(x)[0].square().sum(), layer.parameters())
        assert_all_near([g[k] for g in per_sample.values()], expected)


def test_jacrev_matches_the_jacobian_by_backward(layer):
    x = sequences(2, 1)
    jacobian = jacrev(lambda x: layer(x)[0])(x)
    assert_near(jacobian, torch.autograd.functional.jacobian(lambda x: layer(x)[0], x))


def test_forward_mode_matches_the_difference_quotient(layer):
    x, direction = sequences(4, 2), sequences(4, 2)
    _, tangent = jvp(lambda x: layer(x)[0], (x,), (direction,))
    step = 1e-6
    quotient = (layer(x + step * direction)[0] - layer(x - step * direction)[0]) / (2 * step)
    assert_near(tangent, quotient, tolerance=1e-8)
    with forward_ad.dual_level():
        out, _ = layer(forward_ad.make_dual(x, direction))
        assert_near(forward_ad.unpack_dual(out).tangent, tangent)


def test_forward_mode_reaches_the_weights(kind):
    layer = kind.layer(3, 5, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    tangents = {name: torch.randn_like(p) for name, p in parameters.items()}
    x = sequences(4, 2)
    _, tangent = jvp(lambda p: functional_call(layer, p, (x,))[0], (parameters,), (tangents,))
    step = 1e-6
    ends = [
        functional_call(layer, {n: p + s * tangents[n] for n, p in parameters.items()}, (x,))[0]
        for s in (step, -step)
    ]
    assert_near(tangent, (ends[0] - ends[1]) / (2 * step), tolerance=1e-8)


def test_kernels_run_inside_a_dual_level_when_nothing_is_dual(layer):
    x = sequences(4, 2)
    with forward_ad.dual_level():
        inside = layer(x)[0]
    assert torch.equal(inside, layer(x)[0])


@pytest.fixture
def reference_calls(monkeypatch):
    """The cells whose reference the ops call, one name per call."""
    calls = []
    original = Cell.sequence

    def counted(cell, *arguments, **named):
        calls.append(cell.name)
        return original(cell, *arguments, **named)

    monkeypatch.setattr(Cell, "sequence", counted)
    return calls


def test_ordinary_training_never_runs_the_reference(layer, reference_calls):
    out, _ = layer(sequences(4, 2))
    out.sum().backward()
    assert reference_calls == []


def test_use_reference_runs_the_reference(layer, reference_calls):
    x = sequences(4, 2)
    with rotcell.use_reference():
        expected = layer(x)[0]
    assert len(reference_calls) == 4
    assert_near(layer(x)[0], expected)
    assert len(reference_calls) == 4, "the block has ended"


def test_use_reference_nests_and_ends_with_an_error(layer, reference_calls):
    def fail_inside():
        with rotcell.use_reference():
            with rotcell.use_reference():
                pass
            layer(sequences(4, 2))
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert len(reference_calls) == 4
    layer(sequences(4, 2))
    assert len(reference_calls) == 4


def test_use_reference_holds_for_its_thread_only(layer, reference_calls):
    with rotcell.use_reference():
        other = threading.Thread(target=layer, args=(sequences(4, 2),))
        other.start()
        other.join()
    assert reference_calls == []


def test_use_reference_holds_for_compiled_layers(layer, reference_calls):
    torch._dynamo.reset()
    x = sequences(4, 2)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    outputs = []

    def run():
        outputs.append(compiled(x)[0])
        with rotcell.use_reference():
            outputs.append(compiled(x)[0])

    # A thread that has never used the reference: what it compiled must notice the first time.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert_near(*outputs)
    assert len(reference_calls) == 4


def test_the_meta_device_gives_shapes(kind):
    layer = kind.layer(3, 5, num_layers=2, device="meta")
    out, _ = layer(torch.empty(4, 2, 3, device="meta"))
    assert out.device.type == "meta"
    assert out.shape == (4, 2, 5)


def test_a_device_without_kernels_is_warned_of_once(kind, monkeypatch):
    monkeypatch.setattr(availability, "_warned_devices", set())
    monkeypatch.setattr(availability, "has_kernels", lambda device: False)
    layer = kind.layer(3, 5, device="meta")
    x = torch.randn(4, 2, 3, device="meta")
    with pytest.warns(UserWarning, match="no kernels for device 'meta'"):
        slow, _ = layer(x)
    assert slow.shape == (4, 2, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x)


def test_gpus_have_kernels_one_by_one(monkeypatch):
    """A build may have code for one GPU of a machine and not for the next."""
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    monkeypatch.setattr(availability, "_gpu_has_kernels", availability._gpu_has_kernels.__wrapped__)
    monkeypatch.setattr(_libraries, "has_cuda", lambda: True)
    monkeypatch.setattr(_libraries, "cuda_has_code", lambda index: index == 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [availability.has_kernels(d) for d in (first, second)] == [False, True]
    monkeypatch.setattr(_libraries, "has_cuda", lambda: False)
    assert not availability.has_kernels(second)
    assert not availability.has_kernels(torch.device("xpu", 0))
    assert availability.has_kernels(torch.device("cpu"))

    monkeypatch.setattr(availability, "_warned_devices", set())
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for device in (first, second, first):
            availability._warn_of_missing_kernels(device)
    assert [str(r.message).split("'")[1] for r in record] == ["cuda:0", "cuda:1"]
