"""The scripts in bench/: what they measure, write, draw and refuse. No test looks at a speed."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import rotcell

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import busy
import chart
import compare
import contestants
import growth
import int8
import int8_babi
import machine
import memory
import pages
import report
import resets
import results
import rotations
import row_cells
import speed_targets
from cudnn import PERSIST_STATIC, PERSIST_STATIC_SMALL_H, STANDARD, Gpu, algorithm, algorithms
from ratios import gemm_fraction, of_medians, ratio
from timing import Effort, measure, median_interval, plan_counts, plan_rounds, quartiles
from work import CELLS, PASSES, TABLE, Work, parse, random_works

from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.train import train

BENCH = Path(compare.__file__).parent
CPU = torch.device("cpu")
HASTE = Effort(seconds=0.002, least_samples=2, least_samples_of_rest=1)
TINY = "2x3x4x6"
#: Tests measure nothing that is kept, so the machine and the source may be in any state.
ANYWAY = ("--allow-load", "--allow-dirty")

needs_matplotlib = pytest.mark.skipif(
    chart.missing() is not None, reason=f"no charts: {chart.missing()}"
)
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)


@pytest.fixture
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "QUICK_EFFORT", HASTE)


def compare_tiny(out: Path, *arguments: str) -> dict:
    status = compare.main(["--quick", "--threads", "1", "--out", str(out), *ANYWAY, *arguments])
    assert status == 0
    return results.load(out, "compare")


class TestTiming:
    def test_quartiles(self):
        assert quartiles([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)
        assert quartiles([7.0]) == (7.0, 7.0, 7.0)

    # Ranks k and n + 1 - k of the classical tables of the sign test, two-sided 5 %.
    @pytest.mark.parametrize(
        ("count", "rank"), [(1, 1), (5, 1), (6, 1), (9, 2), (11, 2), (12, 3), (25, 8), (100, 40)]
    )
    def test_interval_of_the_median(self, count, rank):
        values = [float(value) for value in range(1, count + 1)]
        shuffled = random.Random(count).sample(values, count)
        assert median_interval(shuffled) == (rank, count + 1 - rank)

    def test_interval_has_its_nominal_coverage_of_the_median(self):
        draws = random.Random(0)
        held = 0
        for _ in range(2000):
            low, high = median_interval([draws.expovariate(1.0) for _ in range(20)])
            held += low <= math.log(2) <= high
        assert 0.945 <= held / 2000 <= 0.975  # exactly 0.9586 with 20 values

    def test_compared_functions_run_in_every_round(self):
        counts = plan_counts({"a": 0.1, "b": 0.1, "slow": 2.0}, ["a", "b"], Effort(4.0, 3))
        assert counts == {"a": 10, "b": 10, "slow": 3}

    def test_all_the_time_goes_to_the_compared_if_they_are_alone(self):
        assert plan_counts({"a": 0.1, "b": 0.3}, ["a", "b"], Effort(4.0, 3)) == {"a": 10, "b": 10}

    def test_a_function_that_is_too_slow_still_runs_often_enough(self):
        assert plan_counts({"a": 9.0}, ["a"], Effort(1.0, 5)) == {"a": 5}

    def test_rounds_spread_each_function_evenly(self):
        rounds = plan_rounds({"a": 9, "b": 9, "slow": 3})
        assert len(rounds) == 9
        assert all({"a", "b"} <= set(turn) for turn in rounds)
        assert [index for index, turn in enumerate(rounds) if "slow" in turn] == [0, 3, 6]

    def test_order_changes_from_round_to_round_but_not_from_run_to_run(self):
        rounds = plan_rounds({"a": 20, "b": 20})
        assert {tuple(turn) for turn in rounds} == {("a", "b"), ("b", "a")}
        assert rounds == plan_rounds({"a": 20, "b": 20})

    def test_contestants_take_turns(self):
        calls = []
        functions = {name: lambda name=name: calls.append(name) for name in "ab"}
        timings = measure(functions, "ab", Effort(0.02, 4), CPU)
        per_sample = {name: timings[name].calls_per_sample for name in "ab"}
        assert len(timings["a"].samples) == len(timings["b"].samples) >= 4
        first_two_turns = calls[6 : 6 + sum(per_sample.values())]
        assert {name: first_two_turns.count(name) for name in "ab"} == per_sample

    def test_a_row_that_turns_out_slow_ends_early(self):
        calls = []

        def slows_down() -> None:
            calls.append(None)
            time.sleep(0.05 if len(calls) > 3 else 0.001)

        timing = measure({"a": slows_down}, ["a"], Effort(0.1, 4), CPU)["a"]
        assert 4 <= len(timing.samples) < 10

    def test_a_failing_contestant_is_left_out_with_its_reason(self):
        def fail() -> None:
            raise ValueError("not today\nmore")

        timings = measure({"a": lambda: None, "b": lambda: None, "c": fail}, "ab", HASTE, CPU)
        assert timings["c"].error == "ValueError: not today"
        assert "median_s" not in timings["c"].to_json()
        assert timings["a"].samples


class TestWork:
    def test_table_has_the_rows_that_were_promised(self):
        assert TABLE["paper"] == Work("paper", 32, 68, 100, 50)
        assert TABLE["packed-h256"] == Work("packed-h256", 64, 100, 256, 256, form="packed")
        assert TABLE["two-layers-paper"] == Work("two-layers-paper", 32, 68, 100, 50, layers=2)
        assert {name for name, work in TABLE.items() if work.directions == 2} == {
            "bidirectional-paper",
            "bidirectional-h256",
        }

    def test_labels_name_form_and_sizes(self):
        work = Work("row", 2, 3, 4, 4, form="packed", layers=2, directions=2)
        assert work.label() == "packed, 2 layers, bidirectional, B 2, T 3, H 4"

    def test_sizes_are_read(self):
        assert parse("32x68x100x50") == Work("32x68x100x50", 32, 68, 100, 50)

    @pytest.mark.parametrize("text", ["", "paperx", "1x2x3", "0x1x1x1", "1x2x3x-4", "1x2x3x4x5"])
    def test_unknown_shapes_are_refused(self, text):
        with pytest.raises(ValueError, match="unknown shape"):
            parse(text)

    def test_random_shapes_are_reproducible_and_in_their_ranges(self):
        works = random_works(1000, seed=3)
        assert works[:5] == random_works(5, seed=3)
        assert works[:5] != random_works(5, seed=4)
        for work in works:
            assert parse(work.name) == work
        for field, (least, most) in {
            "batch": (1, 180), "steps": (8, 128), "input_size": (8, 512), "hidden_size": (16, 512),
        }.items():  # fmt: skip
            sizes = [getattr(work, field) for work in works]
            assert least <= min(sizes) <= 1.1 * least
            assert most / 1.1 <= max(sizes) <= most
            # Log-uniform: the median is the geometric mean of the bounds.
            assert sorted(sizes)[500] == pytest.approx((least * most) ** 0.5, rel=0.15)

    def test_packed_lengths(self):
        work = parse("200x5x3x4").packed()
        lengths = work.lengths()
        assert set(lengths.tolist()) == {1, 2, 3, 4, 5}
        packed = work.make_input(CPU, torch.float32, requires_grad=True)
        assert len(packed.data) == work.tokens() == lengths.sum()
        assert packed.data.is_leaf
        assert packed.data.requires_grad

    def test_operations_are_those_of_the_matmuls(self):
        work = parse("2x3x4x6")
        assert work.flops(24, "infer") == 2 * (2 * 3) * 24 * (4 + 6)
        assert work.flops(27, "train") == 3 * 2 * (2 * 3) * 27 * (4 + 6)

    @pytest.mark.parametrize("directions", [1, 2])
    def test_operations_are_those_of_the_weights(self, directions):
        work = Work("row", 2, 3, 4, 6, layers=3, directions=directions)
        layer = torch.nn.LSTM(4, 6, num_layers=3, bidirectional=directions == 2, bias=False)
        weights = sum(weight.numel() for weight in layer.parameters())
        assert work.flops(4 * 6, "infer") == 2 * (2 * 3) * weights


A100, RTX_3090, V100, T4 = Gpu(8, 0, 108), Gpu(8, 6, 82), Gpu(7, 0, 80), Gpu(7, 5, 40)
H100, A30, RTX_A6000, K80 = Gpu(9, 0, 132), Gpu(8, 0, 56), Gpu(8, 6, 100), Gpu(3, 7, 13)


class TestCudnnAlgorithm:
    @pytest.mark.parametrize(
        ("cell", "shape", "dtype", "gpu", "forward", "expected"),
        [
            # Small sizes: 192 forward, 128 backward, but not in float64 or on old GPUs.
            ("LSTM", "32x68x100x50", torch.float32, A100, True, PERSIST_STATIC_SMALL_H),
            ("GRU", "32x68x100x50", torch.bfloat16, T4, False, PERSIST_STATIC_SMALL_H),
            ("LSTM", "32x68x100x50", torch.float64, A100, True, STANDARD),
            ("LSTM", "32x68x100x50", torch.float32, K80, True, STANDARD),
            ("LSTM", "32x9x64x192", torch.float32, A100, True, PERSIST_STATIC_SMALL_H),
            ("LSTM", "32x9x64x193", torch.float32, A100, True, STANDARD),
            ("LSTM", "32x9x64x128", torch.float32, A100, False, PERSIST_STATIC_SMALL_H),
            ("LSTM", "32x9x64x129", torch.float32, A100, False, STANDARD),
            # Larger ones persist in float16 only, and the GRU does not on sm_80 and later.
            ("LSTM", "64x100x256x256", torch.float16, A100, True, PERSIST_STATIC),
            ("LSTM", "64x100x256x256", torch.float16, H100, False, PERSIST_STATIC),
            ("LSTM", "64x100x256x256", torch.float32, A100, True, STANDARD),
            ("LSTM", "64x100x256x256", torch.bfloat16, A100, True, STANDARD),
            ("GRU", "64x100x256x256", torch.float16, A100, True, STANDARD),
            ("LSTM", "64x100x256x1024", torch.float16, A100, True, PERSIST_STATIC),
            ("LSTM", "64x100x256x1152", torch.float16, A100, True, STANDARD),
            ("LSTM", "64x100x200x256", torch.float16, A100, True, STANDARD),
            ("LSTM", "60x100x256x256", torch.float16, A100, True, STANDARD),
            ("LSTM", "136x100x256x256", torch.float16, A100, True, STANDARD),
            # Which GPU: at least 98 multiprocessors, not sm_86, not Turing.
            ("LSTM", "64x100x256x256", torch.float16, A30, True, STANDARD),
            ("LSTM", "64x100x256x256", torch.float16, RTX_3090, True, STANDARD),
            ("LSTM", "64x100x256x256", torch.float16, RTX_A6000, True, STANDARD),
            ("LSTM", "64x100x256x256", torch.float16, T4, True, STANDARD),
            # Volta looks at batch and steps, and lets the GRU persist too.
            ("GRU", "64x100x256x256", torch.float16, V100, True, PERSIST_STATIC),
            ("LSTM", "80x100x256x256", torch.float16, V100, True, STANDARD),
            ("LSTM", "128x30x256x256", torch.float16, V100, True, STANDARD),
            ("LSTM", "96x30x256x256", torch.float16, V100, True, PERSIST_STATIC),
            ("LSTM", "8x10x256x256", torch.float16, V100, True, PERSIST_STATIC),
            ("LSTM", "8x9x256x256", torch.float16, V100, True, STANDARD),
        ],
    )
    def test_the_algorithm_for_padded_input(self, cell, shape, dtype, gpu, forward, expected):
        assert algorithm(cell, parse(shape), dtype, gpu, forward) == expected

    @pytest.mark.parametrize("shape", ["32x68x100x50", "64x100x256x256"])
    def test_packed_input_never_persists(self, shape):
        assert algorithm("LSTM", parse(shape).packed(), torch.float16, A100, True) == STANDARD

    @pytest.mark.parametrize("more", [{"layers": 2}, {"directions": 2}])
    def test_larger_sizes_persist_in_one_layer_and_direction_only(self, more):
        work = Work("row", 64, 100, 256, 256, **more)
        assert algorithm("LSTM", work, torch.float16, A100, True) == STANDARD

    def test_training_names_both_directions_if_they_differ(self):
        both = algorithms("LSTM", parse("32x9x64x160"), torch.float32, A100, "train")
        assert both == "PERSIST_STATIC_SMALL_H, backward STANDARD"
        assert algorithms("GRU", parse("32x9x64x64"), torch.float32, A100, "train") == (
            PERSIST_STATIC_SMALL_H
        )


class TestContestants:
    @pytest.mark.parametrize("cell", CELLS)
    @pytest.mark.parametrize("passes", PASSES)
    @pytest.mark.parametrize(
        "work",
        [
            Work("padded", 2, 3, 4, 6),
            Work("packed", 2, 3, 4, 6, form="packed"),
            Work("cell", 2, 1, 4, 6, form="cell"),
            Work("deep", 2, 3, 4, 6, layers=2, directions=2),
        ],
        ids=lambda work: work.name,
    )
    def test_all_forms_of_work_run(self, cell, passes, work):
        task = contestants.Task(work, cell, passes, 1, CPU, torch.float64)
        functions = contestants.build(task, ["reference"], contestants.Limits(0, 1))
        expected = ["rotcell", "torch"] + ["reference"] * CELLS[cell].rotates
        assert list(functions) == expected
        for function in functions.values():
            function()

    @pytest.mark.parametrize("cell", CELLS)
    def test_layers_are_those_of_the_row(self, cell):
        work = Work("deep", 2, 3, 4, 6, layers=2, directions=2)
        task = contestants.Task(work, cell, "train", 1, CPU, torch.float32)
        own = contestants.make_layer(task, contestants.ROTCELL)
        torchs = contestants.make_layer(task, contestants.TORCH)
        assert type(own) is getattr(rotcell, cell)
        assert type(torchs) is getattr(torch.nn, CELLS[cell].torch)
        assert own._cell is rotcell.reference.CELLS[CELLS[cell].reference]
        for layer in (own, torchs):
            assert (layer.num_layers, layer.bidirectional) == (2, True)

    def test_peers_run_only_what_they_support(self):
        limits = contestants.Limits(compiled_steps=3, most_threads=2)

        def peers(work: Work, cell: str = "RotLSTM", passes: str = "infer", threads: int = 2):
            task = contestants.Task(work, cell, passes, threads, CPU, torch.float32)
            return [p for p in contestants.PEERS if contestants._takes_part(p, task, limits)]

        simple = Work("row", 2, 3, 4, 6)
        assert peers(simple) == ["reference", "compiled", "jax", "onnxruntime"]
        assert peers(simple, passes="train") == ["reference", "compiled", "jax"]
        assert peers(simple, threads=1) == ["reference", "onnxruntime"]
        assert peers(simple, cell="LSTM") == ["onnxruntime"]
        assert peers(Work("row", 2, 4, 4, 6)) == ["reference", "jax", "onnxruntime"]
        assert peers(Work("row", 2, 3, 4, 6, layers=2)) == ["reference"]
        assert peers(simple.packed()) == ["reference"]

    def test_square_matmul_is_measured_next_to_large_training(self):
        limits = contestants.Limits(0, 1)
        for passes, hidden, expected in [("train", 256, True), ("train", 255, False)]:
            work = Work("row", 1, 1, 2, hidden)
            task = contestants.Task(work, "RotLSTM", passes, 1, CPU, torch.float32)
            assert ("gemm" in contestants.build(task, [], limits)) == expected

    @needs_jax
    @pytest.mark.parametrize("cell", ["RotLSTM", "RotGRU"])
    def test_jax_matches_rotcell(self, cell):
        import jax_scan

        work = Work("odd", 3, 5, 4, 7)
        task = contestants.Task(work, cell, "train", 1, CPU, torch.float32)
        layer = contestants.make_layer(task, contestants.ROTCELL)
        x = work.make_input(CPU, torch.float32, requires_grad=True)
        grad = torch.randn(5, 3, 7)
        expected = layer(x)[0]
        expected_grads = torch.autograd.grad(expected, [x, *layer.parameters()], grad)

        weights = [weight.detach().numpy() for weight in layer.parameters()]
        run = jax_scan.make_function(
            CELLS[cell].torch, True, x.detach().numpy(), grad.numpy(), weights
        )
        out, grads = run()
        for found, wanted in zip((out, *grads), (expected, *expected_grads), strict=True):
            found = torch.tensor(found.tolist())
            torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-4)


class TestCompare:
    def test_command_line_writes_json_and_chart(self, tmp_path):
        out = tmp_path / "new" / "tiny.json"
        command = [sys.executable, str(BENCH / "compare.py"), "--quick", "--shapes", TINY]
        command += ["--cells", "RotLSTM,ClassicGRU", "--seconds", "0.01"]
        command += ["--threads", "1", "--peers", "reference", "--out", str(out), *ANYWAY]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert "B 2, T 3, in 4, H 6" in done.stdout

        found = json.loads(out.read_text())
        assert found["finished"]
        assert {"cpu", "cores", "instruction_set", "versions"} <= set(found["machine"])
        assert {"load_at_start", "cores_used_by_others", "commit", "dirty"} <= set(found["machine"])
        rows = [(row["cell"], row["pass"], row["threads"]) for row in found["rows"]]
        expected = [(cell, passes, 1) for cell in ("RotLSTM", "ClassicGRU") for passes in PASSES]
        assert rows == expected
        for row in found["rows"]:
            expected = {"rotcell", "torch"} | (
                {"reference"} if CELLS[row["cell"]].rotates else set()
            )
            assert set(row["timings"]) == expected
            shown = row["ratio"]
            assert shown["low"] <= shown["median"] <= shown["high"]
            for timing in row["timings"].values():
                assert timing["q1_s"] <= timing["median_s"] <= timing["q3_s"]
                assert quartiles(timing["samples_s"])[1] == timing["median_s"]
        drawn = chart.missing() is None
        assert (".png" in done.stdout) == drawn
        assert out.with_suffix(".svg").exists() == drawn
        assert {file.suffix for file in out.parent.iterdir()} <= {".json", ".png", ".svg"}

    @pytest.mark.usefixtures("in_haste")
    def test_packed_shapes_are_measured(self, tmp_path, capsys):
        found = compare_tiny(
            tmp_path / "a.json", "--shapes", TINY, "--packed", "--peers", "none",
            "--dtype", "float64", "--targets",
        )  # fmt: skip
        assert [row["work"]["form"] for row in found["rows"]] == ["packed"] * 2 * len(CELLS)
        assert found["settings"]["dtype"] == "float64"
        assert "packed, B 2, T 3" in capsys.readouterr().out

    @pytest.mark.usefixtures("in_haste")
    def test_a_peer_that_fails_has_its_row(self, tmp_path, capsys, monkeypatch):
        def fail(task: contestants.Task) -> contestants.Function:
            def run() -> None:
                raise RuntimeError("out of order")

            return run

        monkeypatch.setattr(contestants, "_reference", fail)
        compare_tiny(tmp_path / "a.json", "--shapes", TINY, "--peers", "reference")
        out = capsys.readouterr().out
        assert out.count("Failed: reference, B 2, T 3, in 4, H 6") == 4
        assert "RuntimeError: out of order" in out

    @pytest.mark.usefixtures("in_haste")
    def test_an_interrupted_run_continues(self, tmp_path, capsys, monkeypatch):
        out, measured = tmp_path / "a.json", []
        run_row = compare.run_row

        def run_until_interrupted(task: contestants.Task, *rest: object) -> dict:
            if len(measured) == 1:
                raise KeyboardInterrupt
            measured.append(task.passes)
            return run_row(task, *rest)

        monkeypatch.setattr(compare, "run_row", run_until_interrupted)
        arguments = ["--quick", "--threads", "1", "--shapes", TINY, "--cells", "LSTM"]
        arguments += ["--peers", "none", "--out", str(out), "--resume", *ANYWAY]
        assert compare.main(arguments) == 130
        first = results.load(out, "compare")["rows"]
        monkeypatch.setattr(compare, "run_row", run_row)
        assert compare.main(arguments) == 0
        found = results.load(out, "compare")
        assert found["rows"][:1] == first
        assert [row["pass"] for row in found["rows"]] == ["train", "infer"]

        with pytest.raises(SystemExit):
            compare.main([*arguments, "--dtype", "float64"])
        assert "has other settings" in capsys.readouterr().err
        assert results.load(out, "compare") == found

    def test_random_shapes_are_measured_and_averaged(self, tmp_path, capsys, monkeypatch):
        drawn = [Work("a", 2, 3, 4, 6), Work("b", 3, 2, 5, 7)]
        monkeypatch.setattr(compare, "random_works", lambda count, seed: drawn[:count][::seed])
        monkeypatch.setattr(compare, "FULL_EFFORT", HASTE)
        out = tmp_path / "a.json"
        arguments = ["--random-shapes", "2", "--seed", "-1", "--threads", "1", "--out", str(out)]
        arguments += ["--cells", "LSTM", "--peers", "none", "--dtype", "float64", "--packed"]
        assert compare.main([*arguments, *ANYWAY]) == 0
        shown = capsys.readouterr().out
        found = results.load(out, "compare")
        assert [row["work"]["name"] for row in found["rows"]] == ["packed-b"] * 2 + ["packed-a"] * 2
        assert found["settings"]["random_shapes"] == {"count": 2, "seed": -1}
        (average,) = report.averages(found["rows"])
        assert average in shown
        assert f"- {average}\n" in pages.random_shapes(found)
        assert "`--random-shapes 2 --seed -1`" in pages.random_shapes(found)

        assert compare.main(["--draw", str(out)]) == (chart.missing() is not None)
        assert average in capsys.readouterr().out

    @needs_matplotlib
    @pytest.mark.usefixtures("in_haste")
    def test_drawing_again_gives_the_same_chart_and_table(self, tmp_path, capsys):
        out = tmp_path / "a.json"
        compare_tiny(
            out, "--shapes", f"{TINY},cell-50", "--peers", "none", "--cells", "RotGRU,LSTM"
        )
        first = capsys.readouterr().out
        png = out.with_suffix(".png").read_bytes()
        svg = out.with_suffix(".svg").read_bytes()
        before = out.read_bytes()
        assert compare.main(["--draw", str(out)]) == 0
        table = [line for line in first.splitlines() if line.startswith(("threads", "1 "))]
        assert set(table) <= set(capsys.readouterr().out.splitlines())
        assert out.with_suffix(".png").read_bytes() == png
        assert out.with_suffix(".svg").read_bytes() == svg
        assert out.read_bytes() == before

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--shapes", "3x4"], "unknown shape '3x4'"),
            (["--shapes", ","], "the list is empty"),
            (["--shapes", "cell-50", "--packed"], "cannot be packed"),
            (["--threads", "0"], "not a list of numbers of threads"),
            (["--threads", "two"], "not a list of numbers of threads"),
            (["--peers", "tensorflow"], "unknown peer 'tensorflow'"),
            (["--cells", "RUM"], "unknown cell 'RUM'"),
            (["--seconds", "0"], "--seconds must be positive"),
            (["--random-shapes", "0"], "--random-shapes must be at least 1, got 0"),
            (["--random-shapes", "2", "--quick"], "--random-shapes and --quick both choose shapes"),
            (["--random-shapes", "2", "--shapes", TINY], "--random-shapes and --shapes both"),
            (["--seed", "1"], "--seed needs --random-shapes"),
            (["--dtype", "int8"], "invalid choice"),
            (["--draw", "/nowhere.json"], "cannot read /nowhere.json: No such file"),
            (["--out", "/dev/null/a.json"], "cannot write /dev/null/a.json"),
            (["--draw", __file__], "is not JSON"),
        ],
    )
    def test_bad_arguments_are_explained(self, arguments, message, capsys):
        with pytest.raises(SystemExit) as exit_info:
            compare.main(arguments)
        assert exit_info.value.code == 2
        assert message in capsys.readouterr().err

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_no_gpu_is_explained(self, capsys):
        with pytest.raises(SystemExit):
            compare.main(["--device", "cuda"])
        assert "torch finds no GPU" in capsys.readouterr().err

    def test_peer_that_is_not_installed_is_explained(self, capsys, monkeypatch):
        monkeypatch.setattr(contestants, "missing", lambda peer: "jax not installed")
        with pytest.raises(SystemExit):
            compare.main(["--peers", "jax"])
        assert "jax: jax not installed" in capsys.readouterr().err

    def test_results_of_another_script_are_refused(self, tmp_path, capsys):
        results.save(tmp_path / "a.json", {"kind": "growth"})
        with pytest.raises(SystemExit):
            compare.main(["--draw", str(tmp_path / "a.json")])
        assert "is not a result of bench/compare.py" in capsys.readouterr().err

    def test_a_result_that_cannot_be_written_leaves_the_old_one(self, tmp_path):
        path = tmp_path / "a.json"
        results.save(path, {"kind": "compare"})
        with pytest.raises(ValueError, match="JSON compliant"):
            results.save(path, {"kind": "compare", "rows": float("nan")})
        assert results.load(path, "compare") == {"kind": "compare"}
        assert list(tmp_path.iterdir()) == [path]


def made_up_row(work: Work, cell: str, passes: str, threads: int, **samples: list[float]) -> dict:
    return {
        "work": work.to_json(),
        "cell": cell,
        "pass": passes,
        "threads": threads,
        "timings": {
            name: {"samples_s": values, "median_s": quartiles(values)[1]}
            for name, values in samples.items()
        },
    }


class TestRatios:
    def test_ratio_is_taken_round_by_round(self):
        # The machine halves its pace after the first rounds, which is not rotcell's doing.
        row = made_up_row(
            TABLE["paper"], "RotLSTM", "train", 1,
            rotcell=[0.5, 0.6, 0.7, 1.0, 1.2], torch=[1.0, 1.0, 1.0, 2.0, 2.0],
        )  # fmt: skip
        assert ratio(row) == pytest.approx((0.6, 0.5, 0.7))
        assert str(ratio(row)) == "0.60 (0.50-0.70)"
        assert ratio(row, "torch", "rotcell").median == pytest.approx(1 / 0.6)

    def test_who_was_not_measured_has_none(self):
        row = made_up_row(TABLE["paper"], "RotLSTM", "train", 1, rotcell=[1.0])
        assert ratio(row) is None
        assert of_medians(row, "rotcell") is None

    def test_averages_are_geometric_and_name_the_worst_row(self):
        rows = [
            made_up_row(work, "RotLSTM", passes, threads, rotcell=[own] * 3, torch=[2.0] * 3)
            for work, passes, threads, own in (
                (TABLE["paper"], "train", 1, 1.0),
                (TABLE["h256"], "train", 1, 4.0),
                (TABLE["paper"], "infer", 1, 0.2),
                (TABLE["paper"], "infer", 2, 2.0),
            )
        ]
        unmeasured = made_up_row(TABLE["paper"], "LSTM", "train", 1, rotcell=[1.0])
        assert report.averages([*rows, unmeasured]) == [
            "RotLSTM, 1 thread: geometric mean 0.46 (train 1.00, infer 0.10) of 3 rows; "
            "worst 2.00 (2.00-2.00): train, B 64, T 100, H 256",
            "RotLSTM, 2 threads: geometric mean 1.00 (train -, infer 1.00) of 1 row; "
            "worst 1.00 (1.00-1.00): infer, B 32, T 68, in 100, H 50",
        ]

    @pytest.mark.parametrize(("cell", "rows"), [("RotLSTM", 4.5), ("LSTM", 4), ("ClassicGRU", 3)])
    def test_rate_is_a_fraction_of_the_square_matmul(self, cell, rows):
        work = Work("row", 2, 3, 256, 256)
        own = work.flops(int(rows * 256), "train") / 40e9
        square = contestants.gemm_flops() / 80e9
        row = made_up_row(work, cell, "train", 1, rotcell=[own], gemm=[square])
        assert gemm_fraction(row, "rotcell") == pytest.approx(0.5)
        assert gemm_fraction(row, "torch") is None


class TestTargets:
    @pytest.mark.parametrize(
        ("name", "cell", "passes", "threads", "expected"),
        [
            ("paper", "RotLSTM", "train", 1, 0.70),
            ("paper", "RotLSTM", "infer", 2, 0.33),
            ("h1024", "RotLSTM", "infer", 2, 0.95),
            ("latency-256", "RotLSTM", "train", 2, 0.75),
            ("long", "RotGRU", "train", 2, 0.22),
            ("h512", "RotGRU", "infer", 1, 0.9),
            ("h128", "RotGRU", "infer", 1, None),
            ("packed-paper", "RotGRU", "infer", 2, 0.9),
            ("h128", "GRU", "infer", 1, 0.9),
            ("latency-256", "GRU", "infer", 2, 0.2),
            ("bidirectional-paper", "GRU", "train", 1, 0.9),
            ("cell-50", "GRU", "train", 1, 0.9),
            ("paper", "GRU", "train", 4, None),
            ("two-layers-h256", "LSTM", "train", 1, 0.9),
            ("bidirectional-paper", "RotLSTM", "train", 2, 0.9),
            ("paper", "LSTM", "train", 1, None),
            ("paper", "RotLSTM", "train", 4, None),
            ("cell-50", "RotLSTM", "train", 1, None),
        ],
    )
    def test_targets_by_shape_cell_and_threads(self, name, cell, passes, threads, expected):
        assert speed_targets.target(made_up_row(TABLE[name], cell, passes, threads)) == expected

    def test_random_shapes_of_gru_have_one(self):
        for batch, expected in ((1, 0.2), (2, 0.9)):
            row = made_up_row(parse(f"{batch}x19x66x406"), "GRU", "infer", 1)
            assert speed_targets.target(row) == expected

    def test_every_padded_row_of_the_rotating_lstm_has_one(self):
        for work in TABLE.values():
            for passes in PASSES:
                found = speed_targets.target(made_up_row(work, "RotLSTM", passes, 1))
                without = work.form == "cell" or work.name in speed_targets.WITHOUT_TARGETS
                assert (found is None) == without

    @pytest.mark.parametrize(
        ("times", "expected"),
        [
            ([0.6] * 7, "0.70 reached by 0.10"),
            ([0.75] * 7, "0.70 missed by 0.05"),
            ([0.5] * 6 + [0.8], "0.70 reached by 0.20 ?"),
        ],
    )
    def test_a_verdict_says_by_how_much(self, times, expected):
        row = made_up_row(TABLE["paper"], "RotLSTM", "train", 1, rotcell=times, torch=[1.0] * 7)
        assert speed_targets.verdict(row) == expected

    def test_summary_lists_what_is_missed(self):
        # Multiplications and additions: 2 * 32 * 68 * 150 * 225 and * 175.
        fast, slow = (
            made_up_row(
                TABLE["paper"], cell, "infer", 1, rotcell=[own], torch=[1e-3], onnxruntime=[5e-4]
            )
            for cell, own in (("RotGRU", 0.4e-3), ("RotLSTM", 0.6e-3))
        )
        assert speed_targets.summary([fast, slow]) == [
            "Targets reached: 1 of 2.",
            "* RotLSTM infer, B 32, T 68, in 100, H 50, 1 thread: 0.50 missed by 0.10, needs "
            "294 GFLOP/s per thread",
            "* exceeds the fastest matmul rate of this run, "
            "286 GFLOP/s per thread: 1 of those missed.",
            "Ahead of onnxruntime: 1 of 2 rows.",
            "  RotLSTM infer, B 32, T 68, in 100, H 50, 1 thread: 1.20 of its time",
        ]


CLEAN = {
    "cores": 2, "load_at_start": 0.3, "cores_used_by_others": 0.02, "commit": "abc", "dirty": False,
}  # fmt: skip


class TestMachine:
    def test_a_quiet_machine_and_a_clean_tree_have_no_faults(self):
        assert machine.faults(CLEAN) == []
        # A load average that only the run before left behind.
        assert machine.faults(CLEAN | {"load_at_start": 2.1}) == []

    def test_faults_are_named(self):
        assert machine.faults(CLEAN | {"cores_used_by_others": 1.5, "load_at_start": 3.0}) == [
            "on a loaded machine (load average 3.0 on 2 cores, other processes used 1.5 of them)"
        ]
        assert machine.faults(CLEAN | {"dirty": True}) == ["with uncommitted changes to abc"]

    def test_faults_of_files_from_before_they_were_recorded(self):
        old = {"cores": 2, "load_at_start": 13.28, "commit": "abc-dirty"}
        assert machine.faults(old) == [
            "on a loaded machine (load average 13.28 on 2 cores)",
            "with uncommitted changes to abc",
        ]

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
    def test_other_processes_are_seen(self):
        with busy._busy_processes(1):
            assert machine._cores_used_by_others() > 0.1

    @pytest.mark.parametrize("script", [compare, growth, int8, resets, rotations, row_cells, busy])
    @pytest.mark.parametrize(
        ("state", "option"),
        [({"cores_used_by_others": 1.5}, "--allow-load"), ({"dirty": True}, "--allow-dirty")],
    )
    def test_no_result_is_written_by_default(
        self, script, state, option, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.setattr(machine, "describe", lambda device: CLEAN | state)
        out = tmp_path / "a.json"
        with pytest.raises(SystemExit) as exit_info:
            script.main(["--out", str(out)])
        assert exit_info.value.code == 2
        assert f"give {option}" in capsys.readouterr().err
        assert not out.exists()

    def test_changed_source_is_dirty_and_changed_results_are_not(self, tmp_path, monkeypatch):
        def git(*arguments):
            identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
            subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

        for name in ("bench/machine.py", "bench/results/cpu.json", "README.md", "src.py"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("1")
        git("init", "-q")
        git("add", ".")
        git("commit", "-qm", "all")
        monkeypatch.setattr(machine, "__file__", str(tmp_path / "bench" / "machine.py"))
        (tmp_path / "bench/results/cpu.json").write_text("2")
        (tmp_path / "README.md").write_text("2")
        (tmp_path / "untracked.py").write_text("2")
        assert machine._is_dirty() is False
        (tmp_path / "src.py").write_text("2")
        assert machine._is_dirty() is True


class TestPages:
    def test_pages_match_the_committed_results(self):
        for page, parts in pages.PAGES.items():
            text = page.read_text()
            assert pages.fill(text, parts, pages.RESULTS) == text, "run python bench/pages.py"

    def test_tables_have_the_ratios_of_the_results(self, tmp_path):
        rows = [
            made_up_row(TABLE["paper"], "RotLSTM", "train", count, rotcell=[own], torch=[1.0])
            for count, own in ((1, 0.7), (2, 0.5))
        ]
        settings = {"threads": [1, 2], "dtype": "float32", "peers": ["jax"]}
        described = {"cpu": "Z80", "instruction_set": "none", "versions": {"torch": "0"}}
        found = {"settings": settings, "rows": rows, "machine": described, "memory": []}
        rows[1]["timings"]["jax"] = {"median_s": 2.0}
        lines = pages.layers(found).splitlines()
        assert lines[0] == "| 1 / 2 threads | RotLSTM train | RotLSTM infer |"
        assert lines[2] == "| B 32, T 68, in 100, H 50 | 0.70 / 0.50 | - / - |".replace(
            " / ", "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}"
        )
        assert lines[4].startswith("Z80, none, torch 0, float32.")
        described["held_back_by"] = {"ROTCELL_ISA": "avx2"}
        last = pages.layers(found).splitlines()[4]
        assert last.startswith("Z80, none, torch 0, ROTCELL_ISA=avx2, float32.")
        assert pages.peers(found).splitlines()[2:] == [
            "| RotLSTM train, B 32, T 68, in 100, H 50 | 4.00 |"
        ]

    def test_speed_in_two_sentences(self):
        rows = [
            made_up_row(TABLE[name], cell, "train", 1, rotcell=[own], torch=[1.0])
            for cell, owns in (
                ("RotLSTM", (0.5, 1.1, 0.7)), ("LSTM", (0.6, 1.0, 0.4)),
                ("RotGRU", (0.2, 0.1, 0.3)), ("GRU", (0.2, 0.2, 0.2)),
            )
            for name, own in zip(("paper", "long", "h128"), owns, strict=True)
        ]  # fmt: skip
        described = {"cpu": "Z80", "instruction_set": "none", "versions": {"torch": "0"}}
        settings = {"threads": [1], "dtype": "float32"}
        text = pages.summary({"settings": settings, "rows": rows, "machine": described})
        sentences, where = text.split("\n\n")
        assert sentences == (
            "A call of `RotLSTM` takes 0.50 to 1.10 (median 0.70) of the time of `nn.LSTM`, a call "
            "of `RotGRU` 0.10 to 0.30 (median 0.20) of the time of `nn.GRU`. `rotcell.LSTM` and "
            "`rotcell.GRU` compute the same as torch's layers in 0.40 to 1.00 (median 0.60) and "
            "0.20 to 0.20 (median 0.20) of their time."
        )
        assert where == ("Z80, none, torch 0, float32. 3 shapes, training and inference, 1 thread.")

    def test_a_table_says_when_and_how_it_was_measured(self):
        described = {
            "commit": "abc", "dirty": False, "cores": 2, "cores_used_by_others": 0.02,
            "load_at_start": 9.0,
        }  # fmt: skip
        found = {"started": "2026-11-19T05:40:49+00:00", "machine": described}
        measured = "Measured on 2026-11-19 at commit abc; other processes used 0.02 of 2 cores."
        assert pages.with_provenance("| a |", found) == f"| a |\n\n{measured}"
        assert pages.with_provenance("On a Z80.", found) == f"On a Z80. {measured}"
        described["dirty"], described["cores_used_by_others"] = True, 1.5
        assert pages.provenance(found) == (
            "**Measured on 2026-11-19 on a loaded machine (load average 9.0 on 2 cores, other "
            "processes used 1.5 of them) and with uncommitted changes to abc; to be measured "
            "again.**"
        )

    def test_missing_marks_are_explained(self, tmp_path):
        with pytest.raises(ValueError, match="must have the marks <!-- layers: "):
            pages.fill("# rotcell\n", pages.BENCHMARKS_PARTS, tmp_path)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs taskset")
class TestBusy:
    def test_a_case_is_measured_in_its_surroundings(self):
        (bound,) = (case for case in busy.CASES if case.one_processor)
        rows = busy.run_case(bound, busy.TINY, seconds=0.001)
        assert set(rows) == set(PASSES)
        row = {"case": {"name": "here"}, "pass": "infer", **rows["infer"]}
        assert row["threads"] == 2  # as OMP_NUM_THREADS says
        assert set(row["timings"]) == {"rotcell", "torch", "rotcell, 1 thread", "torch, 1 thread"}
        assert "failed" not in busy.line(row)
        assert pages.threads({"rows": [row]}).splitlines()[2].startswith("| here | infer | ")

    def test_a_quota_holds_for_the_command_and_the_group_is_gone_afterwards(self):
        group, limits = busy._control_group()
        try:
            with busy._quota(of_one=True) as prefix:
                command = [*prefix, "cat", "/proc/self/cgroup"]
                inside = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                assert {name: (group / name).read_text().strip() for name in limits} == limits
        except busy.NotPossible as reason:
            pytest.skip(str(reason))
        assert group.name in inside
        assert not group.exists()

    def test_busy_processes_end(self):
        with busy._busy_processes(2) as processes:
            assert all(process.poll() is None for process in processes)
        assert all(process.poll() is not None for process in processes)

    def test_a_case_that_fails_is_explained(self, monkeypatch):
        monkeypatch.setattr(sys, "executable", "false")
        with pytest.raises(RuntimeError, match="quiet failed:"):
            busy.run_case(busy.CASES[0], busy.TINY, seconds=0.001)


class TestRotations:
    def test_a_tiny_run_writes_and_prints_its_results(self, tmp_path, capsys):
        out = tmp_path / "rotations.json"
        arguments = ["--shapes", "2x3x8x9", "--seconds", "0.01", "--out", str(out), *ANYWAY]
        assert rotations.main(arguments) == 0
        found = results.load(out, rotations.KIND)
        rows = found["rows"]
        assert [row["pass"] for row in rows] == ["train", "infer"]
        for row in rows:
            assert list(row["timings"]) == list(rotations.LAYERS)
            assert not any("error" in timing for timing in row["timings"].values())
            counts = row["flops_per_token"]
            assert counts["nn.LSTM"] == 2 * 4 * 9 * (8 + 9)
            assert counts["RotLSTM, k = 4"] == 2 * (4 * 9 + 12) * (8 + 9)
            assert counts["LinearRotLSTM"] == 2 * (4 * 9 + 4) * 8
        assert "LinearRotLSTM, k = 4" in capsys.readouterr().out
        expected = ratio(rows[1], "LSTM", "nn.LSTM").median
        del rows[0]["timings"]["GORU"], rows[1]["timings"]["GORU"]
        lines = pages.cost_table(found).splitlines()
        assert lines[2].endswith(f"| {expected:.2f} (1.00) |")
        over_torchs = ratio(rows[1], "RUM", "nn.LSTM").median
        counted = (3 * 9 * 8 + 2 * 9 * 9) / (4 * 9 * (8 + 9))
        (of_rum,) = (line for line in lines if line.startswith("| `RUM`"))
        assert of_rum.endswith(f"| {over_torchs:.2f} ({counted:.2f}) |")
        assert not any("GORU" in line for line in lines)

    def test_unknown_layers_are_refused(self, capsys):
        with pytest.raises(SystemExit):
            rotations.main(["--layers", "nn.RNN"])
        assert "unknown layer 'nn.RNN'" in capsys.readouterr().err


class TestInt8:
    def test_a_tiny_run_writes_and_prints_its_results(self, tmp_path, capsys):
        out = tmp_path / "int8.json"
        arguments = ["--shapes", "2x3x8x8", "--seconds", "0.01", "--out", str(out), *ANYWAY]
        assert int8.main(arguments) == 0
        found = results.load(out, int8.KIND)
        (row,) = found["rows"]
        assert list(row["timings"]) == [int8.TORCH, *int8.LAYERS, int8.FLOAT]
        assert not any("error" in timing for timing in row["timings"].values())
        assert "RotLSTM in float32" in capsys.readouterr().out
        expected = ratio(row, "RotLSTM", int8.TORCH).median
        assert (
            pages.int8_table(found)
            .splitlines()[2]
            .startswith(f"| B 2, T 3, H 8 | {expected:.2f} |")
        )

    def test_the_contestants_have_int8_weights(self):
        functions = int8.contestants(parse("2x3x8x8"))
        layers = {name: function.__closure__ for name, function in functions.items()}
        found = {name: type(cells[0].cell_contents).__name__ for name, cells in layers.items()}
        assert found["RotLSTM"] == "QuantizedRotLSTM"
        assert found[int8.FLOAT] == "RotLSTM"


class TestInt8OnBabi:
    def test_accuracies_before_and_after(self, tmp_path, monkeypatch, capsys):
        settings = RunSettings(task=1, cell="rotlstm", state_size=8, epochs=1, packed=True)
        model, out = tmp_path / "m.pt", tmp_path / "int8.json"
        questions = Source().load(1)
        trained = train(questions, settings, checkpoint=model)
        quantize, quantized = rotcell.quantize_dynamic, []
        monkeypatch.setattr(
            rotcell, "quantize_dynamic", lambda m: quantized.append(m) or quantize(m)
        )
        int8_babi.main([str(model), "--out", str(out)])
        (row,) = results.load(out, int8_babi.KIND)["rows"]
        assert row["float32"] == pytest.approx(trained.history.outcome.test)
        assert len(quantized) == 1
        assert f"{row['answers_changed']} of {len(questions.test)}" in capsys.readouterr().out

    def test_data_that_is_not_there_is_named(self, tmp_path, capsys):
        out = str(tmp_path / "int8.json")
        with pytest.raises(SystemExit):
            int8_babi.main(
                ["m.pt", "--data", str(tmp_path), "--size", "10k", "--out", "/dev/null/x"]
            )
        assert "cannot write /dev/null/x" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            int8_babi.main(["m.pt", "--size", "10k", "--out", out])
        assert "--size is for official files" in capsys.readouterr().err

    def test_points_lost_are_a_mean(self):
        rows = [{"float32": 0.5, "int8": 0.25}, {"float32": 0.75, "int8": 0.875}]
        assert int8_babi.points_lost(rows) == 6.25


class TestRowCells:
    @pytest.fixture(autouse=True)
    def _quick_compiler(self, monkeypatch):
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))

    def test_a_tiny_run_writes_and_prints_its_results(self, tmp_path, capsys):
        out = tmp_path / "row_cells.json"
        arguments = ["--shapes", "2x3x8x9", "--seconds", "0.01", "--out", str(out), *ANYWAY]
        assert row_cells.main(arguments) == 0
        found = results.load(out, row_cells.KIND)
        assert [row["pass"] for row in found["rows"]] == ["train", "infer"]
        for row in found["rows"]:
            assert not any("error" in timing for timing in row["timings"].values())
        assert "of RUM" in capsys.readouterr().out
        page = pages.row_cells_table(found)
        assert page.startswith("|  | RUM in plain PyTorch / RUM |")
        (expected,) = ratio(found["rows"][0], "RUM in plain PyTorch", "RUM")[:1]
        assert f"| B 2, T 3, in 8, H 9, train | {expected:.2f} |" in page
        assert "| layer norm in a compiled loop / LSTM with layer norm |" in page
        (over_lstm,) = ratio(found["rows"][1], "EURNN", "LSTM")[:1]
        assert f" / {over_lstm:.2f}, LSTM with layer norm" in pages.row_cells_cost(found)
        for row in found["rows"]:
            del row["timings"][row_cells.COMPILED]
        assert "compiled loop" not in pages.row_cells_table(found)

    def test_the_loops_of_layer_norm_have_the_same_results(self):
        layer = rotcell.LSTM(4, 6, layer_norm=True)
        x, zeros = torch.randn(5, 3, 4), torch.zeros(3, 6)
        for loop in (row_cells.scripted_loop, row_cells.compiled_loop()):
            found = loop(x, zeros, zeros, list(layer.parameters()))
            torch.testing.assert_close(found, layer(x)[0])


class TestResets:
    def test_a_tiny_run_writes_and_prints_its_results(self, tmp_path, capsys):
        out = tmp_path / "resets.json"
        arguments = ["--tiny", "--seconds", "0.01", "--threads", "1", "--out", str(out), *ANYWAY]
        assert resets.main(arguments) == 0
        found = results.load(out, resets.KIND)
        (row,) = found["rows"]
        assert not any("error" in timing for timing in row["timings"].values())
        assert resets.with_resets("RotLSTM") in capsys.readouterr().out
        assert pages.episodes(found).startswith(f"|  | ms | of {resets.LOOP} |")

    def test_all_methods_with_an_lstm_agree(self):
        lstm, rollout = torch.nn.LSTM(4, 6), resets.TINY
        layer = rotcell.LSTM(4, 6)
        layer.load_state_dict(lstm.state_dict())
        x = torch.randn(rollout.steps, rollout.batch, 4)
        reset_mask = torch.rand(rollout.steps, rollout.batch) < rollout.begins
        expected = layer(x, resets=reset_mask)[0]
        for way in (resets.step_by_step, resets.piece_by_piece):
            torch.testing.assert_close(way(lstm, x, reset_mask), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_a_step_is_at_least_what_it_returns(monkeypatch):
    monkeypatch.setattr(memory, "REPEATS", 1)
    work = Work("row", 16, 50, 64, 256)
    task = contestants.Task(work, "RotLSTM", "train", 1, CPU, torch.float32)
    found = memory.measure(task)
    gradient_of_input = 4 * 16 * 50 * 64
    assert set(found["bytes"]) == {"rotcell", "torch"}
    assert min(found["bytes"].values()) > gradient_of_input
    assert "MiB" in report.memory_line(found)


class TestGrowth:
    def test_the_exponent_is_that_of_the_growth(self):
        sizes = [1.0, 2.0, 4.0, 8.0]
        assert growth.fitted_exponent(sizes, [3 * s**1.5 for s in sizes]) == pytest.approx(1.5)

    def test_a_tiny_run_writes_and_prints_its_results(self, tmp_path, capsys):
        out = tmp_path / "growth.json"
        arguments = ["--tiny", "--seconds", "0.002", "--threads", "1", "--out", str(out), *ANYWAY]
        assert growth.main(arguments) == 0
        found = results.load(out, "growth")
        assert set(found["exponents"]) == {"T", "B", "H"}
        assert len(found["points"]) == 3 * 2 * 2
        assert "LSTM, B 1, H 4: time of rotcell T^" in capsys.readouterr().out
        assert out.with_suffix(".png").exists() == (chart.missing() is None)
