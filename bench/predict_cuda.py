"""What a step of RotLSTM should take on some GPUs, by arithmetic. Nothing is measured.

Prints the tables of docs/cuda.md, forward and backward: the path that would run and its time a
step, what another would take, and what cuDNN runs for an nn.LSTM of that size. The path and its
launch are asked of the package; what a step reads and multiplies follows from them and the sizes in
csrc/cuda/shapes.h, and how many instructions that takes from the compiled code
(docs/cuda-instructions.md). No GPU is needed. --update puts the tables into docs/cuda.md.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cudnn
import torch
from compiled import Compiled, compiled
from work import Work

from rotcell import _C

PAGE = Path(__file__).resolve().parents[1] / "docs/cuda.md"
STEPS = 100
SIZES = [(32, 50), (32, 112), (64, 256), (64, 512), (32, 1024)]
TYPES = {torch.float32: 4, torch.float16: 2}
PASSES = ("forward", "backward")

# As in csrc/cuda/shapes.h, for RotLSTM.
WARP, CHUNK_BYTES, COOPERATIVE_ROWS, TENSOR_SIDE, TENSOR_GROUP = 32, 16, 16, 16, 4
RESIDENT_THREADS = {(4, 1): 512, (4, 4): 384, (2, 1): 736, (2, 4): 640}
REGISTER_CHUNKS = {4: 4, 2: 2}
REGISTER_TILES = {"cooperative": 32, "cluster": 16}
RESULT_BYTES = 4


@dataclass(frozen=True)
class Rates:
    """Of a GPU, by its data sheet; the bandwidth of L2 is what others measured."""

    clock: float  # a microsecond: the boost clock in MHz
    fmas: int  # float32, a clock and multiprocessor
    tensor_fmas: int  # float16 with float32 sums, a clock and multiprocessor
    l2: float  # bytes a microsecond
    l2_size: float
    memory: float  # bytes a microsecond


RATES = {
    "T4": Rates(1590, 64, 512, 1.2e6, 4e6, 0.32e6),
    "A100": Rates(1410, 64, 1024, 5e6, 40e6, 1.55e6),
    "RTX 4090": Rates(2520, 128, 256, 5e6, 72e6, 1.0e6),
    "H100": Rates(1980, 128, 1024, 5.5e6, 50e6, 3.35e6),  # half the tensor rate: no wgmma
}
SHARED_BYTES_A_CLOCK = 128
ISSUED_A_CLOCK = 128  # instructions of threads: four warps, of whatever kind
L2_BYTES_A_CLOCK = 64  # into one multiprocessor
BLOCK_BARRIER_CLOCKS = 30
L2_LATENCY = 0.15
# All copies of a thread into shared memory are in flight where they are asynchronous; otherwise as
# many loads as the compiled code has in its unrolled loop, and the rest comes one by one.
ASYNCHRONOUS_FROM = 80


@dataclass(frozen=True)
class Assumptions:
    """What no data sheet tells, in microseconds unless it says otherwise."""

    broadcast_bytes: int  # of the bandwidth of shared memory, a thread that reads what all read
    input_latency: float  # until the preactivations of a step are there
    cell_clocks: int  # for gates, rotation and state of a pair of units
    signal: float  # from the end of a block's part of a tile until all others can read it
    cluster_barrier: float  # from the last block's arrival until all go on
    cluster_bytes: int  # a clock, from one block of a cluster to the others
    launch: float
    product_efficiency: float  # of torch's matrix product
    follow: float  # on the device, from the end of a kernel to that of the next, if it is empty
    graph_start: float  # the same from one graph to the next


BEST = Assumptions(4, 0.25, 300, 1.0, 0.2, 14, 2.5, 1.0, 1.0, 2.0)
WORST = Assumptions(16, 0.5, 600, 2.0, 0.5, 8, 5.0, 0.5, 2.0, 8.0)


@dataclass(frozen=True)
class Step:
    """What a step does, on the multiprocessor with the most to do unless it says otherwise."""

    fmas: float
    instructions: float  # of threads for each of them, as compiled
    shared_best: int  # bytes of the bandwidth of shared memory
    shared_worst: int
    l2_bytes: int  # on all multiprocessors, of what blocks tell each other or share
    block_barriers: int = 0
    signals: int = 0  # waits for other blocks
    launches: int = 0
    tiles: int = 0  # of the batch, one after the other in a block
    waits: int = 0  # for L2, one after the other, until an operand is in shared memory
    sent: int = 0  # bytes from a block to the others of its cluster


def divide_up(a: int, b: int) -> int:
    return -(-a // b)


def gate_rows(units: int) -> int:
    return 4 * units + units // 2


class Case:
    """One size on one GPU.

    Forward, a block multiplies the old h, of size H, with all gate rows of its units; backward the
    gradients of all gates, with a row for each of its units.
    """

    def __init__(
        self,
        batch: int,
        hidden: int,
        dtype: torch.dtype,
        gpu: str,
        path: str | None = None,
        pass_name: str = "forward",
        by_graph: bool = True,
    ) -> None:
        self.pass_name, self.by_graph = pass_name, by_graph
        self.batch, self.hidden, self.dtype, self.gpu = batch, hidden, dtype, gpu
        self.bytes, self.rates = TYPES[dtype], RATES[gpu]
        self.device = _C.known_cuda_devices()[gpu]
        name = str(dtype).removeprefix("torch.")
        plan: dict[str, Any] | None = _C.cuda_plan(
            "rot_lstm", pass_name, hidden, batch, STEPS, name, gpu, path=path
        )
        if plan is None:
            raise ValueError(f"{gpu} cannot run that on the {path} path")
        self.plan, self.path = plan, plan["path"]
        self.depth = hidden if pass_name == "forward" else gate_rows(hidden)
        self.name = name

    @property
    def compiled(self) -> Compiled:
        """The code of the kernel; stepwise multiplies by torch's."""
        return compiled(self.plan, self.pass_name, self.name, self.device["compute_capability"])

    def rows(self, units: int) -> int:
        """Of the matrix that a block of so many units has on chip."""
        return gate_rows(units) if self.pass_name == "forward" else units

    def step(self) -> Step:
        return {
            "stepwise": self._stepwise,
            "resident": self._resident,
            "cooperative": self._tensor if self.plan["tensor_cores"] else self._cooperative,
            "cluster": self._cluster,
        }[self.path]()

    def _stepwise(self) -> Step:
        rows, hidden = gate_rows(self.hidden), self.hidden
        fmas = self.batch * rows * hidden / self.device["multiprocessors"]
        # Preactivations, or gradients of the gates, both ways, and h or its gradient.
        between = self.batch * (2 * rows + hidden) * self.bytes
        return Step(fmas, 1, 0, 0, rows * hidden * self.bytes + between, launches=2)

    def _chunks(self, rows: int, threads: int, in_lanes: bool) -> tuple[int, int]:
        """Slices of the depth, a power of two if they are in lanes, and chunks of a thread."""
        chunks = divide_up(self.depth, CHUNK_BYTES // self.bytes)
        slices = max(1, min(chunks, threads // rows))
        if in_lanes:
            slices = 1 << min(slices, WARP).bit_length() - 1
        return slices, divide_up(chunks, slices)

    def _chunked(
        self, weights: int, rows: int, batch_rows: int, slices: int, chunks: int, results: int
    ) -> Step:
        """The product of a chunked matrix.

        `weights`: a thread's chunks in shared memory; `results`: bytes of sums written and read.
        """
        threads = slices * rows
        shared = [
            threads * (weights * CHUNK_BYTES + chunks * batch_rows * broadcast) + results
            for broadcast in (BEST.broadcast_bytes, WORST.broadcast_bytes)
        ]
        fmas = threads * chunks * (CHUNK_BYTES // self.bytes) * batch_rows
        return Step(fmas, self.compiled.instructions_per_fma, shared[0], shared[1], 0)

    def _times(self, step: Step, count: int, **more: int) -> Step:
        """`count` such products, and what else there is."""
        return Step(
            step.fmas * count, step.instructions,
            step.shared_best * count, step.shared_worst * count, **more,
        )  # fmt: skip

    def _resident(self) -> Step:
        rows, batch_rows = self.rows(self.hidden), self.plan["rows_per_block"]
        slices, chunks = self._chunks(rows, RESIDENT_THREADS[self.bytes, batch_rows], True)
        results = batch_rows * rows * RESULT_BYTES
        in_shared = max(0, chunks - REGISTER_CHUNKS[self.bytes])
        self._expect_shared(
            slices * in_shared * rows * CHUNK_BYTES,
            batch_rows * slices * chunks * CHUNK_BYTES,
            results,
        )
        product = self._chunked(in_shared, rows, batch_rows, slices, chunks, 2 * results)
        blocks = divide_up(self.plan["blocks"], self.device["multiprocessors"])
        return self._times(product, blocks, l2_bytes=0, block_barriers=2)

    def _cooperative(self) -> Step:
        rows = self.rows(self.plan["units_per_block"])
        slices, chunks = self._chunks(rows, self.plan["threads"], False)
        granule = slices * CHUNK_BYTES
        staged, buffers = self._stage(chunks * granule, granule)
        results = slices * COOPERATIVE_ROWS * rows * RESULT_BYTES
        self._expect_shared(
            slices * chunks * rows * CHUNK_BYTES, buffers * COOPERATIVE_ROWS * staged, results
        )
        product = self._chunked(chunks, rows, COOPERATIVE_ROWS, slices, chunks, 2 * results)
        return self._staged(product, chunks * granule, staged, slices)

    def _stage(self, depth: int, granule: int) -> tuple[int, int]:
        """Bytes of a row that are there at once, and in how many buffers."""
        staged = min(depth, max(1, self.plan["staged_bytes"] // granule) * granule)
        return staged, 1 if staged == depth else 2

    def _tensor(self) -> Step:
        slices, tiles = self._tiles(self.depth)
        granule = slices * TENSOR_SIDE * self.bytes
        staged, buffers = self._stage(tiles * granule, TENSOR_GROUP * granule)
        product = self._tensor_product(slices, tiles, buffers, staged)
        return self._staged(product, tiles * granule, staged, slices)

    def _cluster(self) -> Step:
        units, others = self.plan["units_per_block"], self.plan["cluster"] - 1
        all_units = divide_up(self.hidden, units) * units
        forward = self.pass_name == "forward"
        slices, tiles = self._tiles(all_units if forward else gate_rows(all_units))
        depth = tiles * slices * TENSOR_SIDE * self.bytes
        product = self._tensor_product(slices, tiles, 2, depth)
        made = COOPERATIVE_ROWS * (units if forward else gate_rows(units)) * self.bytes
        shared = product.shared_best + others * 2 * made  # read to be sent, and written by others
        return Step(
            product.fmas, product.instructions, shared, shared, 0,
            block_barriers=2 if slices == 1 else 3, signals=1, tiles=1, sent=others * made,
        )  # fmt: skip

    def _tiles(self, depth: int) -> tuple[int, int]:
        """Slices of a depth on tensor cores, and tiles of a warp."""
        row_tiles = divide_up(self.rows(self.plan["units_per_block"]), TENSOR_SIDE)
        columns = divide_up(depth, TENSOR_SIDE)
        slices = max(1, min(columns, self.plan["threads"] // WARP // row_tiles))
        return slices, divide_up(columns, slices)

    def _tensor_product(self, slices: int, tiles: int, buffers: int, staged: int) -> Step:
        """The product on tensor cores; `staged` bytes of a row are there at once."""
        rows = divide_up(self.rows(self.plan["units_per_block"]), TENSOR_SIDE) * TENSOR_SIDE
        row_tiles = rows // TENSOR_SIDE
        depth = tiles * slices * TENSOR_SIDE * self.bytes
        results = slices * COOPERATIVE_ROWS * rows * RESULT_BYTES
        padding = 8 * self.bytes
        lanes = row_tiles * slices * WARP
        weights = max(0, tiles - REGISTER_TILES[self.path]) * lanes * CHUNK_BYTES
        self._expect_shared(weights, buffers * COOPERATIVE_ROWS * (staged + padding), results)
        shared = weights + row_tiles * TENSOR_SIDE * depth + 2 * results
        fmas = COOPERATIVE_ROWS * rows * depth // self.bytes
        return Step(fmas, self.compiled.instructions_per_fma, shared, shared, 0)

    def _staged(self, product: Step, depth: int, staged: int, slices: int) -> Step:
        """The products of a block's tiles; `depth` and `staged` in bytes of a row."""
        groups = self.plan["tile_groups"]
        tiles = divide_up(divide_up(self.batch, COOPERATIVE_ROWS), groups)
        stages = divide_up(depth, staged)
        # A thread has this many chunks of a stage, if rows lie at multiples of a chunk.
        row_bytes = (self.depth * self.bytes, self.hidden * self.bytes)
        by_chunks = all(row % CHUNK_BYTES == 0 for row in row_bytes)
        loads = COOPERATIVE_ROWS * staged // self.plan["threads"]
        loads = divide_up(loads, CHUNK_BYTES if by_chunks else self.bytes)
        asynchronous = by_chunks and self.device["compute_capability"] >= ASYNCHRONOUS_FROM
        waits = stages * (1 if asynchronous else sum(divmod(loads, self.compiled.loads_in_flight)))
        written = COOPERATIVE_ROWS * depth
        whole = Step(
            product.fmas, product.instructions,
            product.shared_best + written, product.shared_worst + written, 0,
        )  # fmt: skip
        return self._times(
            whole, tiles,
            l2_bytes=self.plan["blocks"] // groups * self.batch * self.depth * self.bytes,
            block_barriers=tiles * (2 * stages + (2 if slices == 1 else 3)), signals=1,
            tiles=tiles, waits=tiles * waits,
        )  # fmt: skip

    def _expect_shared(self, *parts: int) -> None:
        """The kernels' own arithmetic must agree, or this script is out of date."""
        found, expected = sum(divide_up(part, 32) * 32 for part in parts), self.plan["shared_bytes"]
        if abs(found - expected) >= 32:
            raise SystemExit(f"shared memory: {found} bytes here, {expected} in csrc/cuda")

    def time(self, assumed: Assumptions) -> float:
        """A step, in microseconds: no less than what is read and kept of it takes in memory."""
        memories = 1 if self.pass_name == "forward" else 2  # c; backward, that of the step before
        numbers = gate_rows(self.hidden) * 2 * self.bytes
        numbers += self.hidden * (1 + memories) * self.bytes
        return max(self._on_chip(assumed), self.batch * numbers / self.rates.memory)

    def _on_chip(self, assumed: Assumptions) -> float:
        step, rates = self.step(), self.rates
        if self.path == "stepwise":
            kernels = step.launches * assumed.follow + self._torch_product(step, assumed)
            if self.plan["graph_steps"] and self.by_graph:
                return kernels + assumed.graph_start / self.plan["graph_steps"]
            return max(step.launches * assumed.launch, kernels)
        clock, tensor = rates.clock, self.plan["tensor_cores"]
        fmas = rates.tensor_fmas if tensor else rates.fmas
        shared = step.shared_best if assumed is BEST else step.shared_worst
        issued = step.fmas * step.instructions / ISSUED_A_CLOCK
        product = max(step.fmas / fmas, issued, shared / SHARED_BYTES_A_CLOCK) / clock
        fixed = step.block_barriers * BLOCK_BARRIER_CLOCKS / clock
        if self.path == "resident":
            return max(product, assumed.input_latency) + fixed + assumed.cell_clocks / clock
        if self.path == "cluster":
            sending = step.sent / assumed.cluster_bytes / clock
            cell = assumed.cell_clocks / clock
            return product + sending + fixed + cell + assumed.cluster_barrier
        into_one = step.l2_bytes / self.plan["blocks"]
        staging = max(
            step.waits * L2_LATENCY, into_one / L2_BYTES_A_CLOCK / clock, step.l2_bytes / rates.l2
        )
        # What a step reads of its own is on its way while the block waits. With several tiles it
        # works on another one meanwhile.
        work = product + staging + fixed + step.tiles * assumed.cell_clocks / clock
        elsewhere = work * (step.tiles - 1) / step.tiles
        return work + max(assumed.signal - elsewhere, 0)

    def _torch_product(self, step: Step, assumed: Assumptions) -> float:
        rates = self.rates
        fmas = rates.fmas if self.bytes == 4 else rates.tensor_fmas
        weights = gate_rows(self.hidden) * self.hidden * self.bytes
        bandwidth = rates.l2 if weights < rates.l2_size else rates.memory
        product = max(step.fmas / fmas / rates.clock, weights / bandwidth)
        return product / assumed.product_efficiency + (step.l2_bytes - weights) / rates.l2

    def cudnn(self) -> str:
        work = Work("", self.batch, STEPS, self.hidden, self.hidden)
        capability = divmod(self.device["compute_capability"], 10)
        gpu = cudnn.Gpu(*capability, self.device["multiprocessors"])
        name = cudnn.algorithm("LSTM", work, self.dtype, gpu, self.pass_name == "forward")
        return name.removeprefix("PERSIST_STATIC_") if name.endswith("H") else name

    def span(self) -> str:
        return span(self.time(BEST), self.time(WORST), 1)

    def path_name(self) -> str:
        return f"{self.path} by graph" if self.plan["graph_steps"] and self.by_graph else self.path

    def row_name(self) -> str:
        return f"B {self.batch}, H {self.hidden}, {str(self.dtype).removeprefix('torch.')}"


def markdown(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] + ["---:"] * (len(heading) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def span(low: float, high: float, digits: int) -> str:
    texts = [f"{value:.{digits}f}" for value in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def times(pass_name: str) -> str:
    """Path and microseconds a step, those of others, and cuDNN's algorithm."""

    def cell(*size: Any) -> str:
        chosen = Case(*size, pass_name=pass_name)
        lines = [f"**{chosen.path_name()} {chosen.span()}**"]
        if chosen.plan["graph_steps"]:
            single = Case(*size, pass_name=pass_name, by_graph=False)
            lines.append(f"{single.path_name()} {single.span()}")
        other = "cooperative" if chosen.path in ("stepwise", "cluster") else "stepwise"
        with contextlib.suppress(ValueError):
            instead = Case(*size, path=other, pass_name=pass_name)
            lines.append(f"{instead.path_name()} {instead.span()}")
        return "<br>".join([*lines, f"cuDNN {chosen.cudnn()}"])

    rows = [
        [Case(*size, dtype, "T4").row_name(), *(cell(*size, dtype, gpu) for gpu in RATES)]
        for size in SIZES
        for dtype in TYPES
    ]
    return markdown([pass_name, *RATES], rows)


def details(gpu: str, pass_name: str = "forward") -> str:
    """What a step is made of."""
    heading = ["path", "blocks of threads", "shared memory, KB", "MFLOP", "KB read from it",
               "KB through L2", "KB to its cluster", "barriers", "waits for blocks",
               "launches a step"]  # fmt: skip
    rows = []
    for batch, hidden in SIZES:
        for dtype in TYPES:
            case = Case(batch, hidden, dtype, gpu, pass_name=pass_name)
            step, plan = case.step(), case.plan
            rows.append([
                case.row_name(),
                case.path_name() + (" (tensor cores)" if plan["tensor_cores"] else ""),
                f"{plan['blocks']} of {plan['threads']}" if plan["blocks"] else "torch's",
                f"{plan['shared_bytes'] / 1024:.0f}", f"{2e-6 * step.fmas:.2f}",
                span(step.shared_best / 1024, step.shared_worst / 1024, 0),
                f"{step.l2_bytes / 1024:.0f}", f"{step.sent / 1024:.0f}", str(step.block_barriers),
                str(step.signals), str(step.launches),
            ])  # fmt: skip
    return markdown([f"{gpu}, {pass_name}", *heading], rows)


def updated(page: str) -> str:
    """The page with its tables made anew; which is which their first line says."""
    made = [times(p) for p in PASSES] + [details(gpu, p) for gpu in RATES for p in PASSES]
    by_name = {table.split(" | ")[0]: table for table in made}
    parts = re.split(r"((?:^\|.*\n)+)", page, flags=re.MULTILINE)
    return "".join(
        f"{by_name[part.split(' | ')[0]]}\n" if part.split(" | ")[0] in by_name else part
        for part in parts
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="put the tables into docs/cuda.md")
    parser.add_argument(
        "--details", choices=RATES, metavar="GPU", help=f"what a step does: {', '.join(RATES)}"
    )
    options = parser.parse_args()
    if options.update:
        PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    table = partial(details, options.details) if options.details else times
    print("\n\n".join(table(pass_name) for pass_name in PASSES))


if __name__ == "__main__":
    main()
