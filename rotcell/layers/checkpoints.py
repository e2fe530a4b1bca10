"""Checkpoints that name what they are.

nn.GRU and ClassicGRU have parameters of the same names and shapes, but compute different things.
So every module of this package writes its cell, and the options that are part of the equations,
into the metadata of its state_dict, and compares them when one is loaded. torch.save keeps the
metadata; a plain dict, and so safetensors, has none.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rotcell.reference import CELLS, group_rotation

from .options import OPTIONS

if TYPE_CHECKING:
    from .base import CellModule

__all__ = ["METADATA_KEY", "compare", "describe", "write"]

METADATA_KEY = "rotcell"


def describe(module: CellModule) -> dict[str, Any]:
    """The cell and, if they are not at their default, the options that are part of its equations.

    >>> import rotcell
    >>> describe(rotcell.RotLSTM(3, 4, gate_activation="hard_sigmoid"))
    {'cell': 'rot_lstm', 'gate_activation': 'hard_sigmoid'}
    """
    options = {
        name: getattr(module, name)
        for name, option in OPTIONS.items()
        if option.is_part_of_equations and getattr(module, name) != option.default
    }
    return {"cell": module._cell.family, **options}


def write(module: CellModule, state_dict: Any, prefix: str) -> None:
    """Put the description into a state_dict's metadata, if it has any."""
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        metadata.setdefault(prefix[:-1], {})[METADATA_KEY] = describe(module)


def compare(
    module: CellModule, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any
) -> str | None:
    """Say why a state_dict is not one of this module, or warn if that cannot be known.

    Returns:
        An error message, or None.
    """
    tensors = {**module._parameters, **module._buffers}
    loaded = {
        name: getattr(state_dict[prefix + name], "shape", ())
        for name in tensors
        if prefix + name in state_dict
    }
    if not loaded:
        return None
    this = f"{type(module).__name__}" + (f" {prefix[:-1]!r}" if prefix else "")
    found = local_metadata.get(METADATA_KEY)
    if _lacks_angles(module, loaded) and _may_be_plain(module, found):
        return f"The weights for {this} have no rows for its angles: {module._without_angles}."
    if found is None:
        if sizes := _other_rotation_sizes(module, loaded):
            return (
                f"The weights for {this} have as many rows as with rotation_size={sizes}, expected "
                f"those of rotation_size={module.rotation_size}."
            )
        if module._lookalike is not None:
            warnings.warn(
                f"The state_dict for {this} does not say which layer wrote it. {module._lookalike} "
                f"has the same names and shapes but different equations: with its weights, {this} "
                "computes something else.",
                stacklevel=5,  # the caller of load_state_dict
            )
        return None
    own = describe(module)
    if found["cell"] != own["cell"]:
        return (
            f"The state_dict for {this} is that of a {found['cell']!r}, expected {own['cell']!r}."
        )
    different = [
        f"{name}={found.get(name, option.default)!r} (here {own.get(name, option.default)!r})"
        for name, option in OPTIONS.items()
        if found.get(name, option.default) != own.get(name, option.default)
    ]
    if not different:
        return None
    message = f"The state_dict for {this} was saved with {', '.join(different)}"
    # Two sizes of groups may have as many angles, but never the same ones.
    other_angles = found.get("rotation_size", 2) != module.rotation_size
    other_shapes = any(
        shape != tensors[name].shape  # type: ignore[union-attr]
        for name, shape in loaded.items()
    )
    if other_angles or other_shapes:
        return f"{message}."
    warnings.warn(f"{message}: with its weights, {this} computes something else.", stacklevel=5)
    return None


def _may_be_plain(module: CellModule, found: Mapping[str, Any] | None) -> bool:
    """Whether weights with this description can be those of the module without its rotation."""
    if found is None:
        return True
    written = CELLS.get(found["cell"])
    return written is not None and written.recurrence is module._cell.recurrence


def _other_rotation_sizes(module: CellModule, loaded: Mapping[str, Any]) -> str:
    """The sizes of groups with which the module would have as many rows as these weights."""
    cell, hidden_size = module._cell, module.hidden_size
    full = tuple(p.name for p in module._parameter_table if p.shape[0] == "R")
    rows = {tuple(shape[:1]) for name, shape in loaded.items() if name.startswith(full)}
    if not cell.rotates or (cell.rows(hidden_size),) in rows:
        return ""
    others = cell.rows(hidden_size) - cell.rotation.angles(hidden_size)
    return " or ".join(
        str(k)
        for k in range(2, hidden_size + 1)
        if (others + group_rotation(k).angles(hidden_size),) in rows
    )


def _lacks_angles(module: CellModule, loaded: Mapping[str, Any]) -> bool:
    """Whether these are the weights of the same recurrence without its rotation."""
    cell = module._cell
    plain = sum(cell.gate_sizes(module.hidden_size)[: len(cell.recurrence.gates)])
    if plain == cell.rows(module.hidden_size):
        return False
    full = tuple(p.name for p in module._parameter_table if p.shape[0] == "R")
    return any(tuple(shape[:1]) == (plain,) for n, shape in loaded.items() if n.startswith(full))
