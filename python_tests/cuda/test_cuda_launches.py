"""How often kernels are launched, and the errors of refused launches."""

import pytest
import torch
from helpers import GRU, KINDS, LSTM, assert_all_near
from kernel_cases import Case, run
from machines import CLUSTER, KNOWN, STEPWISE, Setting
from test_kernels import SIGMOIDS

ONE_LAUNCH = ["resident", "cooperative"]
STEPS = 5


def launches_of_each_pass(emulator, case, path):
    setting = Setting(path, "H100")
    emulator.use(setting, case, torch.float32)
    tensors, batch_sizes = case.arguments(torch.float32)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    emulator.launches()
    out, *_ = case.kind.kernel(*leaves, batch_sizes, *case.options)
    forward = emulator.launches()
    out.sum().backward()
    return forward, emulator.launches()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("path", ONE_LAUNCH)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sequence_is_one_launch_in_each_pass(emulator, kind, path, packed, reverse):
    case = Case(kind, 6, STEPS, 3, 20, packed=packed, reverse=reverse)
    forward, backward = launches_of_each_pass(emulator, case, path)
    assert forward == {f"{kind}_{path}_forward": 1}
    assert backward == {f"{kind}_{path}_backward": 1}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_clusters_are_one_launch_in_each_pass(emulator, kind):
    emulator.use(CLUSTER, Case(kind, 6, STEPS, 3, 20), torch.float16)
    tensors, batch_sizes = Case(kind, 6, STEPS, 3, 20).arguments(torch.float16)
    run(kind.kernel, tensors, batch_sizes)
    passes = ("forward", "backward")
    assert emulator.launches() == {f"{kind}_cluster_{pass_name}": 1 for pass_name in passes}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_stepwise_has_one_launch_for_each_stage_of_a_step(emulator, kind):
    case = Case(kind, 6, STEPS, 3, 20, packed=True)
    passes = launches_of_each_pass(emulator, case, "stepwise")
    stages = 2 if kind.num_states == 1 else 1
    for counts, pass_name in zip(passes, ("forward", "backward"), strict=True):
        assert counts == {f"{kind}_stage{stage}_{pass_name}": STEPS for stage in range(stages)}


@pytest.mark.parametrize("path", ONE_LAUNCH)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_direction_and_layer_is_a_separate_launch(emulator, kind, path):
    layer = kind.layer(3, 8, num_layers=2, bidirectional=True)
    emulator.force_path(path)
    emulator.launches()
    out, _ = layer(torch.randn(4, 5, 3))
    assert emulator.launches() == {f"{kind}_{path}_forward": 4}
    out.sum().backward()
    assert emulator.launches() == {f"{kind}_{path}_backward": 4}


@pytest.mark.parametrize(
    ("hidden", "batch", "path"),
    [(50, 8, "resident"), (300, 4, "cooperative"), (300, 129, "stepwise")],
)
def test_without_force_the_plan_is_followed(emulator, hidden, batch, path):
    tensors, _ = Case(LSTM, batch, 3, 2, hidden).arguments(torch.float32)
    torch.ops.rotcell.rot_lstm(*tensors, None, *SIGMOIDS, False)
    names = {"stepwise": "rot_lstm_stage0_forward"}
    assert set(emulator.launches()) == {names.get(path, f"rot_lstm_{path}_forward")}


FORCED = {
    "resident, too large": ("resident", Case(LSTM, 2, 2, 3, 300), "hidden size 300.*shared memory"),
    "cooperative, too large": (
        "cooperative",
        Case(GRU, 2, 2, 3, 4000),
        "rot_gru of hidden size 4000",
    ),
    "resident, projection": ("resident", Case(LSTM, 2, 2, 3, 6, outputs=2), "projections"),
    "cooperative, projection": ("cooperative", Case(LSTM, 2, 2, 3, 6, outputs=2), "projections"),
}


@pytest.mark.parametrize("name", FORCED)
def test_a_forced_path_that_cannot_run_raises_with_the_reason(emulator, name):
    path, case, message = FORCED[name]
    emulator.force_path(path)
    tensors, _ = case.arguments(torch.float32)
    with pytest.raises(RuntimeError, match=f"forced path {path} cannot run.*{message}"):
        case.kind.kernel(*tensors, None)


@pytest.mark.parametrize(
    ("device", "dtype", "message"),
    [
        ("A100", torch.float16, "has no clusters"),
        ("H100", torch.float32, "it is for fp16 and bf16"),
    ],
)
def test_forced_clusters_that_cannot_run_say_why(emulator, device, dtype, message):
    emulator.module.pose_as(KNOWN[device])
    emulator.force_path("cluster")
    tensors, _ = Case(LSTM, 2, 2, 3, 6).arguments(dtype)
    with pytest.raises(RuntimeError, match=f"forced path cluster cannot run.*{message}"):
        LSTM.kernel(*tensors, None)


def test_a_forced_path_without_cooperative_launch_raises_with_the_reason(emulator):
    emulator.module.pose_as(KNOWN["T4"] | {"cooperative_launch": False})
    emulator.force_path("cooperative")
    tensors, _ = Case(LSTM, 2, 2, 3, 6).arguments(torch.float32)
    with pytest.raises(RuntimeError, match="no cooperative launch"):
        LSTM.kernel(*tensors, None)


def test_an_unknown_path_is_refused(emulator):
    with pytest.raises(
        ValueError, match="stepwise, resident, cooperative or cluster, got 'fastest'"
    ):
        emulator.force_path("fastest")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_launch_that_fails_names_the_kernel(emulator, kind):
    # A GPU that promises a block more shared memory than a multiprocessor has.
    emulator.module.pose_as(KNOWN["H100"] | {"shared_bytes_per_multiprocessor": 2048})
    emulator.force_path("cooperative")
    tensors, _ = Case(kind, 2, 2, 3, 20).arguments(torch.float32)
    with pytest.raises(RuntimeError, match=f"{kind}_cooperative_forward.*failed to launch"):
        kind.kernel(*tensors, None)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_cooperative_launch_that_is_refused_goes_stepwise(emulator, kind):
    device = KNOWN["H100"] | {"shared_bytes_per_multiprocessor": 2048}
    emulator.module.pose_as(device)
    case = Case(kind, 4, 3, 2, 300, packed=True)
    setting = Setting("cooperative", "H100")
    assert setting.plan(case, torch.float64, "forward", device)["path"] == "cooperative"
    tensors, batch_sizes = case.arguments()
    results, grads = run(kind.kernel, tensors, batch_sizes)
    counts = emulator.launches()
    assert counts
    assert all("_stage" in name for name in counts)
    expected, expected_grads = run(kind.reference, tensors, batch_sizes)
    assert_all_near(results + grads, expected + expected_grads)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_clusters_that_are_refused_go_cooperative(emulator, kind):
    case = Case(kind, 4, 3, 2, 300, packed=True)
    needed = {
        path: Setting(path, "H100").plan(case, torch.float16, "forward")["shared_bytes"]
        for path in ("cluster", "cooperative")
    }
    # No multiprocessor has room for a block of a cluster, but all have for one of the others.
    room = needed["cooperative"] + 1024
    assert room < needed["cluster"]
    emulator.module.pose_as(KNOWN["H100"] | {"shared_bytes_per_multiprocessor": room})
    tensors, batch_sizes = case.arguments(torch.float16)
    results = kind.kernel(*tensors, batch_sizes)
    assert emulator.launches() == {f"{kind}_cooperative_forward": 1}
    expected = kind.reference(*(None if t is None else t.double() for t in tensors), batch_sizes)
    assert_all_near(results, expected, tolerance=2e-3)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_removing_the_emulator_restores_the_cpu_ops(emulator_module, kind):
    tensors, _ = Case(kind, 3, 4, 5, 6).arguments(torch.float32)
    arguments = (*tensors, None, False)
    on_cpu = kind.kernel(*arguments)
    emulator_module.reset_launches()
    for _ in range(2):
        emulator_module.install()
        kind.kernel(*arguments)
        assert sum(emulator_module.launches().values()) > 0
        emulator_module.remove()
        emulator_module.reset_launches()
        again = kind.kernel(*arguments)
        assert emulator_module.launches() == {}
        assert all(torch.equal(a, b) for a, b in zip(on_cpu, again, strict=True))


@pytest.mark.parametrize("kind", [k for k in KINDS if k.description.can_project], ids=str)
def test_stepwise_projects(emulator, kind):
    case = Case(kind, 4, STEPS, 3, 8, outputs=3)
    emulator.use(STEPWISE, case, torch.float32)
    emulator.force_path(None)
    tensors, _ = case.arguments(torch.float32)
    kind.op(*tensors, None, *SIGMOIDS, False)
    assert emulator.launches() == {f"{kind}_stage0_forward": STEPS}
