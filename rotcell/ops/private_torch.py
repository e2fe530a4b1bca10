"""Every private API of torch that rotcell uses, each with what happens in a torch without it.

Nothing else in the package may touch a name of torch that starts with an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = [
    "Argument",
    "Schema",
    "below_autograd",
    "constant_when_compiled",
    "in_function_transform",
    "is_tracing",
    "keep_stream_busy",
    "may_be_in_forward_ad",
    "register_derivative",
    "rnn_precision",
    "schema_of",
    "without_modes",
]

# A context in which the dispatcher skips its autograd kernels, so that a call of an op goes to the
# kernel at once. Without it: no_grad, in which the ops give the same results, but torch calls the
# Python function registered as their derivative's first half each time.
below_autograd: Callable[[], Any]
if hasattr(torch._C, "_AutoDispatchBelowAutograd"):
    below_autograd = torch._C._AutoDispatchBelowAutograd
else:
    below_autograd = torch.no_grad


class _DerivedOp(torch.autograd.Function):
    """An op below autograd; the last argument says how it is differentiated."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        *given, (op, ctx.derivative_of_op, setup_context) = arguments
        with below_autograd():
            results = op(*given)
        if setup_context is not None:
            setup_context(ctx, tuple(given), results)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (*ctx.derivative_of_op(ctx, *grads), None)


_apply_derived: Callable[..., Any] = _DerivedOp.apply
_autograd_kernels = torch.library.Library("rotcell", "IMPL")


def register_derivative(
    op: Any, backward: Callable[..., Any], setup_context: Callable[..., None] | None = None
) -> None:
    """Do what ``torch.library.register_autograd`` does, in a tenth of the time.

    That function makes two classes for each op, which took a third of rotcell's import time. It is
    called if `below_autograd` is not private, because a kernel would call itself then.
    """
    if below_autograd is torch.no_grad:
        torch.library.register_autograd(op, backward, setup_context=setup_context)
        return
    derivative = op, backward, setup_context
    _autograd_kernels.impl(op, lambda *given: _apply_derived(*given, derivative), "Autograd")


# Whether torch.jit.trace is recording. Without it: the public function, which asks more.
is_tracing: Callable[[], bool] = getattr(
    torch._C,
    "_is_tracing",
    torch.jit.is_tracing,  # type: ignore[attr-defined]
)

# Whether a transform of torch.func is active: its tensors have no memory for a kernel. Without it:
# always False, so that torch.func raises torch's own errors unless `rotcell.use_reference` is on.
_peek = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)


def in_function_transform() -> bool:
    """Whether a transform of torch.func is active, as far as this torch lets us know."""
    return _peek is not None and _peek() is not None


# The precision that torch.backends.mkldnn.rnn.fp32_precision allows. Without the private function:
# the public attribute, which takes microseconds, or "none" in a torch without the setting.
_get_precision = getattr(torch._C, "_get_fp32_precision_getter", None)


def rnn_precision() -> str:
    """The value of ``torch.backends.mkldnn.rnn.fp32_precision``, for float32 layers on a CPU."""
    if _get_precision is not None:
        return str(_get_precision("mkldnn", "rnn"))
    rnn = getattr(torch.backends.mkldnn, "rnn", None)
    return str(getattr(rnn, "fp32_precision", "none"))


# Whether a level of forward-mode AD is open. Without it: always True, so that callers ask each
# tensor for its tangent, by a public function, at a microsecond each.
_knows_level = hasattr(forward_ad, "_current_level")


def may_be_in_forward_ad() -> bool:
    """Whether a tensor may have a tangent."""
    return not _knows_level or forward_ad._current_level >= 0


def without_modes() -> AbstractContextManager[Any]:
    """A context without the caller's torch_dispatch modes, such as fake tensors.

    Without the private function: these modes stay, and see what runs in the context.
    """
    disable = getattr(torch.utils._python_dispatch, "_disable_current_modes", nullcontext)
    context: AbstractContextManager[Any] = disable()
    return context


def keep_stream_busy(cycles: int) -> None:
    """Keep the current CUDA stream busy for so many cycles, for a check of streams.

    Without the private function: returns at once, so the check may miss a missing wait.
    """
    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is not None:
        sleep(cycles)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def constant_when_compiled(function: _Function) -> _Function:
    """Do what ``torch.compiler.assume_constant_result`` does.

    That function imports torch's compiler first, which takes as long as importing torch. If torch
    no longer reads this mark, torch.compile traces into the function instead of calling it.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class Argument(NamedTuple):
    """An argument or result of an op."""

    name: str
    type: str  # "Tensor", "Optional[Tensor]", "int", "bool"


class Schema(NamedTuple):
    """The signature of an op."""

    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]


def schema_of(op: Any) -> Schema:
    """The schema of an op's overload.

    Without ``OpOverload._schema``: read from the declaration that torch prints in the error of a
    call without arguments.
    """
    schema = getattr(op, "_schema", None)
    if schema is None:
        return _printed_schema(op)
    arguments, results = (
        tuple(Argument(a.name, str(a.type)) for a in row)
        for row in (schema.arguments, schema.returns)
    )
    return Schema(arguments, results)


def _printed_schema(op: Any) -> Schema:
    try:
        op()
    except (RuntimeError, TypeError) as error:
        declaration = re.search(r"Declaration: rotcell::[\w.]+\((.*)\) -> \((.*)\)", str(error))
    if declaration is None:
        raise RuntimeError(f"torch {torch.__version__} does not print the schema of {op}")
    arguments, results = (
        tuple(
            Argument(name, "Optional[Tensor]" if kind == "Tensor?" else kind)
            for kind, name in (item.split() for item in row.split(", "))
        )
        for row in declaration.groups()
    )
    return Schema(arguments, results)
