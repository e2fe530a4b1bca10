"""What nvcc made of a kernel, from docs/cuda-instructions.md."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "build_tools"))

import count_instructions

CELL = "RotLstm"
#: Multiplications of an instruction for tensor cores (16 x 8 x 16), which a warp issues together.
MMA_FMAS, WARP = 2048, 32
#: How blocks tell each other what they made, by path.
EXCHANGES = {"cooperative": "ThroughL2<", "cluster": "InCluster<"}


@dataclass(frozen=True)
class Compiled:
    """Of the loops that a step spends its time in."""

    #: Of a thread, for each multiplication of the product: loads and all that goes with it.
    instructions_per_fma: float
    #: From global memory, before one of them is needed.
    loads_in_flight: int


@functools.cache
def _table() -> dict[tuple[str, str], dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = count_instructions.read_table(
        count_instructions.TABLE.read_text(encoding="utf-8")
    )
    return found


def architecture(compute_capability: int) -> str:
    """The nearest one that was counted for: code hardly differs between its neighbours."""
    counted = [int(name.removeprefix("sm_")) for name in count_instructions.ARCHITECTURES]
    return f"sm_{max((a for a in counted if a <= compute_capability), default=min(counted))}"


def compiled(plan: dict[str, Any], pass_name: str, dtype_name: str, capability: int) -> Compiled:
    """The kernel that a plan launches for RotLSTM."""
    arch = architecture(capability)
    path, tensor = plan["path"], plan["tensor_cores"]
    kernel = "cooperative" if path == "cluster" else path
    rows = [
        row
        for (name, of), row in _table().items()
        if of == arch
        and name.startswith(f"{kernel}_{pass_name}<{CELL}, {EXCHANGES.get(path, '')}")
        and dtype_name in name
        and ("Tensor" in name) == tensor
        and (path != "resident" or name.endswith(f", {plan['rows_per_block']}>"))
    ]
    if len(rows) != 1:
        raise SystemExit(
            f"{count_instructions.TABLE.name} has {len(rows)} kernels for {plan['path']} "
            f"{pass_name} of {CELL} in {dtype_name} on {arch}: run .ci/cuda_kernels --update"
        )
    product = count_instructions.read_loop(rows[0]["product loop"])
    loading = count_instructions.read_loop(rows[0]["loading loop"])
    if tensor:
        per_fma = WARP * product["all"] / (MMA_FMAS * product["mma"])
    else:
        per_fma = product["all"] / product["fma"]
    return Compiled(per_fma, loading.get("in flight", 1))
