"""The scripts in bench/: what they measure, write, draw and refuse. No test looks at a speed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import chart
import compare
import contestants
import growth
import memory
import report
import results
from cudnn import PERSIST_STATIC, PERSIST_STATIC_SMALL_H, STANDARD, Gpu, algorithm, algorithms
from timing import Effort, measure, plan_counts, plan_rounds, quartiles
from work import TABLE, Work, parse

BENCH = Path(compare.__file__).parent
CPU = torch.device("cpu")
HASTE = Effort(seconds=0.002, least_samples=2, least_samples_of_rest=1)
TINY = "2x3x4x6"

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
    status = compare.main(["--quick", "--threads", "1", "--out", str(out), *arguments])
    assert status == 0
    return results.load(out, "compare")


class TestTiming:
    def test_quartiles(self):
        assert quartiles([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)
        assert quartiles([7.0]) == (7.0, 7.0, 7.0)

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

    def test_who_fails_is_left_out_and_says_why(self):
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
        assert set(report.TARGETS) == set(TABLE) - {"cell-50"}

    def test_sizes_are_read(self):
        assert parse("32x68x100x50") == Work("32x68x100x50", 32, 68, 100, 50)

    @pytest.mark.parametrize("text", ["", "paperx", "1x2x3", "0x1x1x1", "1x2x3x-4", "1x2x3x4x5"])
    def test_nonsense_is_refused(self, text):
        with pytest.raises(ValueError, match="unknown shape"):
            parse(text)

    def test_packed_lengths(self):
        work = parse("200x5x3x4").packed()
        lengths = work.lengths()
        assert set(lengths.tolist()) == {1, 2, 3, 4, 5}
        packed = work.make_input(CPU, torch.float32, requires_grad=True)
        assert len(packed.data) == work.tokens() == lengths.sum()
        assert packed.data.is_leaf
        assert packed.data.requires_grad

    def test_operations(self):
        work = parse("2x3x4x6")
        assert work.flops("LSTM", "infer", rotating=False) == 2 * (2 * 3) * 24 * (4 + 6)
        assert work.flops("LSTM", "train", rotating=True) == 3 * 2 * (2 * 3) * 27 * (4 + 6)


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
    def test_padded(self, cell, shape, dtype, gpu, forward, expected):
        assert algorithm(cell, parse(shape), dtype, gpu, forward) == expected

    @pytest.mark.parametrize("shape", ["32x68x100x50", "64x100x256x256"])
    def test_packed_input_never_persists(self, shape):
        assert algorithm("LSTM", parse(shape).packed(), torch.float16, A100, True) == STANDARD

    def test_training_names_both_directions_if_they_differ(self):
        both = algorithms("LSTM", parse("32x9x64x160"), torch.float32, A100, "train")
        assert both == "PERSIST_STATIC_SMALL_H, backward STANDARD"
        assert algorithms("GRU", parse("32x9x64x64"), torch.float32, A100, "train") == (
            PERSIST_STATIC_SMALL_H
        )


class TestContestants:
    @pytest.mark.parametrize("cell", ["LSTM", "GRU"])
    @pytest.mark.parametrize("passes", ["train", "infer"])
    @pytest.mark.parametrize("form", ["padded", "packed", "cell"])
    def test_all_forms_of_work_run(self, cell, passes, form):
        work = Work("tiny", 2, 1 if form == "cell" else 3, 4, 6, form)
        task = contestants.Task(work, cell, passes, 1, CPU, torch.float64)
        functions = contestants.build(task, ["reference"], contestants.Limits(0, 1))
        assert list(functions) == ["rotcell", "torch", "reference"]
        for function in functions.values():
            function()

    def test_square_product_is_measured_beside_large_training(self):
        limits = contestants.Limits(0, 1)
        for passes, hidden, expected in [("train", 256, True), ("train", 255, False)]:
            work = Work("row", 1, 1, 2, hidden)
            task = contestants.Task(work, "LSTM", passes, 1, CPU, torch.float32)
            assert ("gemm" in contestants.build(task, [], limits)) == expected

    @needs_jax
    @pytest.mark.parametrize("cell", ["LSTM", "GRU"])
    def test_jax_computes_what_rotcell_does(self, cell):
        import jax_scan

        work = Work("odd", 3, 5, 4, 7)
        task = contestants.Task(work, cell, "train", 1, CPU, torch.float32)
        layer = contestants.make_layer(task, rotating=True)
        x = work.make_input(CPU, torch.float32, requires_grad=True)
        grad = torch.randn(5, 3, 7)
        expected = layer(x)[0]
        expected_grads = torch.autograd.grad(expected, [x, *layer.parameters()], grad)

        weights = [weight.detach().numpy() for weight in layer.parameters()]
        run = jax_scan.make_function(cell, True, x.detach().numpy(), grad.numpy(), weights)
        out, grads = run()
        for found, wanted in zip((out, *grads), (expected, *expected_grads), strict=True):
            found = torch.tensor(found.tolist())
            torch.testing.assert_close(found, wanted.detach(), rtol=1e-4, atol=1e-4)


class TestCompare:
    def test_command_line_writes_json_and_chart(self, tmp_path):
        out = tmp_path / "new" / "tiny.json"
        command = [sys.executable, str(BENCH / "compare.py"), "--quick", "--shapes", TINY]
        command += ["--threads", "1", "--peers", "reference", "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert "B 2, T 3, in 4, H 6" in done.stdout

        found = json.loads(out.read_text())
        assert found["finished"]
        assert {"cpu", "cores", "instruction_set", "versions", "commit"} <= set(found["machine"])
        rows = [(row["cell"], row["pass"], row["threads"]) for row in found["rows"]]
        assert rows == [(c, p, 1) for c in ("LSTM", "GRU") for p in ("train", "infer")]
        for row in found["rows"]:
            assert set(row["timings"]) == {"rotcell", "torch", "reference"}
            for timing in row["timings"].values():
                assert timing["q1_s"] <= timing["median_s"] <= timing["q3_s"]
                assert quartiles(timing["samples_s"])[1] == timing["median_s"]
        drawn = chart.missing() is None
        assert (".png" in done.stdout) == drawn
        assert out.with_suffix(".svg").exists() == drawn
        assert {file.suffix for file in out.parent.iterdir()} <= {".json", ".png", ".svg"}

    @pytest.mark.usefixtures("in_haste")
    def test_packed_shapes(self, tmp_path, capsys):
        found = compare_tiny(
            tmp_path / "a.json", "--shapes", TINY, "--packed", "--peers", "none",
            "--dtype", "float64", "--targets",
        )  # fmt: skip
        assert [row["work"]["form"] for row in found["rows"]] == ["packed"] * 4
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

    @needs_matplotlib
    @pytest.mark.usefixtures("in_haste")
    def test_drawing_again_gives_the_same_chart_and_table(self, tmp_path, capsys):
        out = tmp_path / "a.json"
        compare_tiny(out, "--shapes", f"{TINY},cell-50", "--peers", "none")
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


def test_rate_is_a_part_of_the_square_products():
    work = Work("row", 2, 3, 256, 256)
    flops = work.flops("LSTM", "train", rotating=True)
    row = {
        "work": work.to_json(),
        "cell": "LSTM",
        "pass": "train",
        "timings": {
            "rotcell": {"median_s": flops / 40e9},
            "gemm": {"median_s": contestants.gemm_flops() / 80e9},
        },
    }
    assert report.gemm_fraction(row, "rotcell") == pytest.approx(0.5)
    assert report.gemm_fraction(row, "torch") is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_a_step_is_at_least_what_it_returns(monkeypatch):
    monkeypatch.setattr(memory, "REPEATS", 1)
    work = Work("row", 16, 50, 64, 256)
    task = contestants.Task(work, "LSTM", "train", 1, CPU, torch.float32)
    found = memory.measure(task)
    gradient_of_input = 4 * 16 * 50 * 64
    assert set(found["bytes"]) == {"rotcell", "torch"}
    assert min(found["bytes"].values()) > gradient_of_input
    assert "MiB" in report.memory_line(found)


class TestGrowth:
    def test_exponent(self):
        sizes = [1.0, 2.0, 4.0, 8.0]
        assert growth.fitted_exponent(sizes, [3 * s**1.5 for s in sizes]) == pytest.approx(1.5)

    def test_tiny_run(self, tmp_path, capsys):
        out = tmp_path / "growth.json"
        arguments = ["--tiny", "--seconds", "0.002", "--threads", "1", "--out", str(out)]
        assert growth.main(arguments) == 0
        found = results.load(out, "growth")
        assert set(found["exponents"]) == {"T", "B", "H"}
        assert len(found["points"]) == 3 * 2 * 2
        assert "LSTM, B 1, H 4: time of rotcell T^" in capsys.readouterr().out
        assert out.with_suffix(".png").exists() == (chart.missing() is None)
