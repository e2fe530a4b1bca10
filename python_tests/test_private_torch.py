"""A torch without one of the private APIs that rotcell uses: everything ordinary still works."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from helpers import KINDS

from rotcell.ops.cell_ops import OVERLOADS, ROW_BIAS
from rotcell.ops.private_torch import _printed_schema, keep_stream_busy, schema_of

#: How to hide each of them from rotcell. What torch itself cannot do without comes back as soon as
#: rotcell is imported. Schemas have a separate test.
HIDDEN = {
    "nothing": "",
    "_AutoDispatchBelowAutograd": """
        hidden = torch._C._AutoDispatchBelowAutograd
        del torch._C._AutoDispatchBelowAutograd
        later = lambda: setattr(torch._C, "_AutoDispatchBelowAutograd", hidden)
    """,
    "_is_tracing": """
        hidden = torch._C._is_tracing
        torch.jit.is_tracing = lambda: hidden()
        del torch._C._is_tracing
    """,
    "peek_interpreter_stack": "del torch._C._functorch.peek_interpreter_stack",
    "_functorch": """
        hidden = torch._C._functorch
        del torch._C._functorch
        later = lambda: setattr(torch._C, "_functorch", hidden)
    """,
    "_get_fp32_precision_getter": """
        hidden = torch._C._get_fp32_precision_getter
        del torch._C._get_fp32_precision_getter
        later = lambda: setattr(torch._C, "_get_fp32_precision_getter", hidden)
    """,
    "_current_level": """
        from torch.autograd import forward_ad
        hidden = forward_ad._current_level
        del forward_ad._current_level
        later = lambda: setattr(forward_ad, "_current_level", hidden)
    """,
    # torch's compiler, which some ops import at their first call, cannot be imported without it.
    "_disable_current_modes": """
        import torch._dynamo
        del torch.utils._python_dispatch._disable_current_modes
    """,
    "_dynamo_marked_constant": """
        def later():
            from rotcell.ops import availability
            for function in (availability.has_kernels, availability.kernels_work):
                del function._dynamo_marked_constant
    """,
}

PROGRAM = """
import torch
later = lambda: None
{hide}
import rotcell
later()

torch.manual_seed(0)
for make in (rotcell.RotLSTM, rotcell.RotGRU):
    for options in ({{}}, {{"batch_first": True}}, {{"zoneout": 0.3}}):
        layer, x = make(3, 5, **options).eval(), torch.randn(4, 2, 3, requires_grad=True)
        context = torch.randn(4 if options.get("batch_first") else 2, 1)
        wide = make(4, 5, **options).eval()
        found = []
        for run in (layer, lambda x: wide(x, context=context)):
            out, _ = run(x)
            out.square().sum().backward()
            with torch.no_grad():
                inferred, _ = run(x)
            assert torch.equal(out, inferred) and not inferred.requires_grad
            found += [out.detach(), x.grad.clone()]
            x.grad = None
            with rotcell.use_reference():
                expected, _ = run(x)
                expected.square().sum().backward()
            torch.testing.assert_close(out, expected)
            torch.testing.assert_close(found[-1], x.grad)
            x.grad = None
    traced = torch.jit.trace(layer, torch.randn(4, 2, 3), check_trace=False)
    torch.testing.assert_close(traced(x)[0], layer(x)[0])
with torch.autograd.forward_ad.dual_level():
    dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
    assert torch.autograd.forward_ad.unpack_dual(layer(dual)[0]).tangent is not None
print("done")
"""


@pytest.mark.parametrize("name", HIDDEN)
def test_layers_run_without_a_private_api(name: str) -> None:
    program = PROGRAM.format(hide=textwrap.dedent(HIDDEN[name]))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300
    )
    assert ran.stdout.strip() == "done", ran.stderr


def test_the_printed_schema_is_the_schema() -> None:
    for kind in KINDS:
        for packet in (kind.op, kind.backward_op):
            for overload in (*OVERLOADS, ROW_BIAS):
                op = getattr(packet, overload)
                assert _printed_schema(op) == schema_of(op)


def test_private_names_of_torch_are_used_in_one_file() -> None:
    """Checks torch itself and its modules that the package imports by name."""
    package = Path(schema_of.__code__.co_filename).parents[1]
    private = re.compile(r"\btorch(\.\w+)*\._|\bforward_ad\._|\._schema\b|_dynamo_")
    for path in package.rglob("*.py"):
        if path.name == "private_torch.py":
            continue
        lines = path.read_text(encoding="utf-8").replace("torch.__version__", "").splitlines()
        found = [
            line
            for line in lines
            if private.search(line) or re.search(r"from torch[\w.]* import _", line)
        ]
        assert not found, f"{path}: {found}"


def test_a_stream_is_not_kept_busy_without_the_private_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cycles: list[int] = []
    monkeypatch.setattr(torch.cuda, "_sleep", cycles.append)
    keep_stream_busy(5)
    assert cycles == [5]
    monkeypatch.delattr(torch.cuda, "_sleep")
    keep_stream_busy(5)
    assert cycles == [5]


def test_torch_still_has_all_of_them() -> None:
    """Each fallback costs something, so a torch that needs one is to be noticed."""
    assert torch._C._AutoDispatchBelowAutograd
    assert torch._C._is_tracing
    assert torch._C._functorch.peek_interpreter_stack
    assert torch.autograd.forward_ad._current_level == -1
    assert KINDS[0].op.default._schema
