"""What only a GPU has: graphs, streams, several devices, autocast, waiting for the device."""

from __future__ import annotations

import pytest
import torch
from helpers import KINDS
from kernel_cases import Case, output_gradients, run
from machines import Setting, on

pytestmark = pytest.mark.needs_cuda
PATHS = ["stepwise", "resident", "cooperative"]


def arguments(gpu, path, case, dtype=torch.float32):
    gpu.use(Setting(path, "H100"), case, dtype)
    tensors, batch_sizes = case.arguments(dtype)
    return on(gpu, tensors), batch_sizes


def assert_same_bits(first, second):
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_graph_repeats_forward_and_backward(gpu, kind, path):
    tensors, _ = arguments(gpu, path, Case(kind, 6, 5, 3, 20))
    leaves = [None if t is None else t.clone().requires_grad_() for t in tensors]
    targets = [t for t in leaves if t is not None]
    incoming = output_gradients(kind.kernel(*tensors, None, False))

    def once():
        results = kind.kernel(*leaves, None, False)
        return [*results, *torch.autograd.grad(results, targets, incoming)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        once()  # torch's matmuls get their workspace before the capture
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = once()
    with torch.no_grad():
        leaves[0].normal_()
        leaves[1].normal_()
    graph.replay()
    assert_same_bits([t.clone() for t in captured], once())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_graph_of_different_lengths_goes_stepwise(gpu, kind):
    tensors, batch_sizes = arguments(gpu, "stepwise", Case(kind, 6, 5, 3, 20, packed=True))
    expected = kind.kernel(*tensors, batch_sizes, False)
    gpu.force_path(None)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = kind.kernel(*tensors, batch_sizes, False)
    graph.replay()
    assert_same_bits(captured, expected)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_side_stream_gives_the_same_bits(gpu, kind, path, packed):
    case = Case(kind, 6, 50, 3, 20, packed=packed)
    tensors, batch_sizes = arguments(gpu, path, case)
    expected = run(kind.kernel, tensors, batch_sizes, False)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10**7)  # a read on another stream comes too early
        late = [None if t is None else t.clone() for t in tensors]
        found = run(kind.kernel, late, batch_sizes, False)
    side.synchronize()
    for a, b in zip(found, expected, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_host_never_waits_for_the_device(gpu, kind, path, packed):
    case = Case(kind, 6, 5, 3, 20, packed=packed)
    tensors, batch_sizes = arguments(gpu, path, case)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    targets = [t for t in leaves if t is not None]
    incoming = output_gradients(kind.kernel(*tensors, batch_sizes, False))
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = kind.kernel(*leaves, batch_sizes, False)
        torch.autograd.grad(results, targets, incoming)
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_device_that_is_not_the_current_one(gpu, kind, path):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is only one GPU")
    case = Case(kind, 6, 5, 3, 20, packed=True)
    tensors, batch_sizes = arguments(gpu, path, case)
    expected, _ = run(kind.kernel, tensors, batch_sizes, False)
    elsewhere = [None if t is None else t.to("cuda:1") for t in tensors]
    assert torch.cuda.current_device() == 0
    found, grads = run(kind.kernel, elsewhere, batch_sizes, False)
    assert {t.device for t in found + grads} == {torch.device("cuda:1")}
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_autocast_matches_half_precision(gpu, kind, dtype):
    layer = kind.layer(4, 6).to(gpu.device)
    x = torch.randn(5, 3, 4, device=gpu.device, requires_grad=True)
    with torch.autocast("cuda", dtype=dtype):
        out, _ = layer(x)
    out.float().sum().backward()
    assert out.dtype == dtype
    assert x.grad.dtype == torch.float32
    assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}
    assert torch.equal(out, layer.to(dtype)(x.to(dtype))[0])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_tf32_switch_is_left_to_torch(gpu, kind, path):
    case = Case(kind, 6, 5, 3, 20)
    tensors, _ = arguments(gpu, path, case)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        found = kind.kernel(*tensors, None, False)
        torch.backends.cuda.matmul.allow_tf32 = False
        exact = kind.kernel(*tensors, None, False)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    for a, b in zip(found, exact, strict=True):  # 10 bits of mantissa instead of 23
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
