"""Same bits on every run; torch's number of threads; Python threads; fork."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from helpers import KINDS, assert_all_near, pack, random_sequences
from torch import nn


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def train(layer, x):
    layer.zero_grad()
    x = x.detach().requires_grad_()
    out, _ = layer(x)
    out.square().sum().backward()
    return [out.detach(), x.grad, *(p.grad.clone() for p in layer.parameters())]


@pytest.fixture(params=KINDS, ids=str)
def layer_and_input(request):
    # Large enough for our second thread to be worth its while, too small (below 2^15 elements) for
    # torch's own ops to use one: those hang in a forked child.
    torch.manual_seed(0)
    return request.param.layer(20, 33, num_layers=2, bidirectional=True), torch.randn(25, 17, 20)


def test_every_run_gives_the_same_bits(two_threads, layer_and_input):
    layer, x = layer_and_input
    first = train(layer, x)
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(train(layer, x), first, strict=True))


def test_the_number_of_threads_changes_no_more_than_rounding(two_threads, layer_and_input):
    layer, x = layer_and_input
    two = train(layer, x)
    torch.set_num_threads(1)
    assert_all_near(train(layer, x), two, tolerance=1e-5)


# One set of weight gradients per range of rows is summed up: how many ranges there are must follow
# from torch's number of threads, not from the processors that happen to be there.
DIGESTS = """
import hashlib, torch
from helpers import KINDS
torch.set_num_threads(2)
for kind in KINDS:
    for batch, steps, inputs, hidden in [(32, 25, 20, 33), (64, 40, 8, 21), (17, 60, 16, 40)]:
        torch.manual_seed(0)
        layer, x = kind.layer(inputs, hidden), torch.randn(steps, batch, inputs)
        layer(x)[0].square().sum().backward()
        grads = b"".join(p.grad.numpy().tobytes() for p in layer.parameters())
        print(kind, batch, hidden, hashlib.sha256(grads).hexdigest())
"""


def test_the_affinity_mask_changes_no_bit():
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("needs two processors")

    def digests(processors):
        return subprocess.run(
            [sys.executable, "-c", DIGESTS],
            cwd=Path(__file__).parent,
            check=True,
            timeout=300,
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, processors),
        ).stdout

    assert digests(allowed[:1]) == digests(allowed[:2])


def test_packed_input_gives_the_same_bits_every_time(two_threads, layer_and_input):
    layer, _ = layer_and_input
    packed = pack(random_sequences(range(40, 5, -2), 20, torch.float32))
    first = layer(packed)[0].data
    assert all(torch.equal(layer(packed)[0].data, first) for _ in range(5))


# Batches too small for two threads, and weights so large that two threads share a larger one: each
# thread has some of the units, and waits for the other at every step.
@pytest.mark.parametrize(("batch", "steps", "hidden"), [(1, 30, 130), (3, 30, 129), (8, 4, 710)])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_threads_that_share_units_change_no_bit(two_threads, kind, packed, batch, steps, hidden):
    torch.manual_seed(0)
    layer = kind.layer(20, hidden, bidirectional=True)
    x = torch.randn(steps, batch, 20)
    lengths = [steps - k % 3 for k in range(batch)]

    def run():
        leaf = x.clone().requires_grad_()
        sequence = leaf
        if packed:
            sequence = nn.utils.rnn.pack_padded_sequence(leaf, lengths, enforce_sorted=False)
        out, states = layer(sequence)
        out = out.data if packed else out
        layer.zero_grad()
        out.square().sum().backward()
        grads = [leaf.grad, *(p.grad for p in layer.parameters())]
        return [out.detach(), *(s.detach() for s in kind.as_states(states)), *grads]

    two = run()
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(two, run(), strict=True))


def test_threads_that_share_units_start_where_openmp_may_not():
    """OpenMP gives one thread, torch says two: the second must not be waited for in vain."""
    code = """
import torch
from rotcell import RotLSTM
torch.manual_seed(0)
layer, x = RotLSTM(20, 130), torch.randn(30, 1, 20)
with torch.no_grad():
    outs = []
    for threads in (2, 1):
        torch.set_num_threads(threads)
        outs.append(layer(x)[0])
assert torch.equal(*outs)
"""
    environment = os.environ | {"OMP_THREAD_LIMIT": "1"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_several_python_threads_with_threads_that_share_units(two_threads, kind):
    layer, x = kind.layer(20, 130), torch.randn(8, 30, 1, 20)
    with torch.no_grad():
        expected = [layer(i)[0] for i in x]

        def forward(number):
            with torch.no_grad():
                return layer(x[number % 8])[0]

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(forward, range(64)))
    assert all(torch.equal(r, expected[k % 8]) for k, r in enumerate(results))


def test_several_python_threads_at_once(two_threads, layer_and_input):
    layer, x = layer_and_input
    inputs = [x + k for k in range(8)]
    with torch.no_grad():
        expected = [layer(i)[0] for i in inputs]

    def forward(number):
        with torch.no_grad():
            return layer(inputs[number % 8])[0]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(forward, range(64)))
    assert_all_near(results, [expected[k % 8] for k in range(64)], tolerance=1e-6)


def _train_and_send(connection, layer, x):
    signal.alarm(60)  # a child that waits for threads that fork() did not copy waits forever
    connection.send([t.tolist() for t in train(layer, x)])
    connection.send(torch.get_num_threads())


def test_a_forked_child_computes_the_same(two_threads, layer_and_input):
    layer, x = layer_and_input
    expected = train(layer, x)  # starts the parent's threads
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_train_and_send, args=(sender, layer, x))
    child.start()
    sender.close()
    try:
        results = [torch.tensor(values) for values in receiver.recv()]
        threads = receiver.recv()
    except EOFError:
        child.join()
        pytest.fail(f"the child ended with code {child.exitcode}")
    child.join()
    assert child.exitcode == 0
    assert threads == 2, "the child's own setting is left alone"
    assert_all_near(results, expected, tolerance=1e-5)


def test_a_parent_keeps_its_threads_after_a_fork(two_threads, layer_and_input):
    layer, x = layer_and_input
    expected = train(layer, x)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert all(torch.equal(a, b) for a, b in zip(train(layer, x), expected, strict=True))


def test_after_sleeping_threads_stop_sharing_units_for_a_while():
    contention = pytest.importorskip("rotcell._C").Contention()
    together, alone, look = (
        getattr(contention.Advice, name)
        for name in ("WAIT_FOR_EACH_OTHER", "WORK_ALONE", "LOOK_FIRST")
    )
    assert contention.advice(now=0.0) == together
    contention.learn(worked=1e-3, slept=1e-4, now=0.0)
    assert contention.advice(now=0.0) == together
    # A processor that was taken away for an instant, now and then.
    for now in (0.1, 0.2, 0.3, 0.4, 0.5):
        contention.learn(worked=1e-3, slept=9e-4, now=now)
        contention.learn(worked=9e-3, slept=0.0, now=now)
        assert contention.advice(now=now) == together
    # Short calls that sleep, one after the other; a long one, below, is enough.
    calls = 0
    while contention.advice(now=1.0) == together:
        contention.learn(worked=1e-3, slept=5e-4, now=1.0)
        calls += 1
    assert 2 <= calls <= 20
    contention.learn(worked=1e-3, slept=0.0, now=1.01)  # a lucky moment
    assert contention.advice(now=1.199) == alone
    assert contention.advice(now=1.201) == look
    # Others still need the processors: as long again.
    contention.put_off(now=1.3)
    assert contention.advice(now=1.499) == alone
    assert contention.advice(now=1.501) == look
    # The same again and again: longer each time, up to two seconds.
    for now in (2.0, 3.0, 4.0, 6.0, 9.0):
        contention.learn(worked=1e-2, slept=1e-2, now=now)
    assert contention.advice(now=10.9) == alone
    assert contention.advice(now=11.1) == look
    # All goes well: soon it is as at first.
    for now in (11.2, 12.0, 13.0, 14.0, 15.0):
        contention.learn(worked=1e-3, slept=0.0, now=now)
    assert contention.advice(now=15.0) == together
    contention.learn(worked=1e-2, slept=1e-2, now=16.0)
    assert contention.advice(now=16.3) == look


@pytest.fixture
def four_busy_processes():
    _C = pytest.importorskip("rotcell._C")
    spinning = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spinning) for _ in range(4)]
    try:
        # They need a moment to start, and one of them may stop for an instant.
        end = time.monotonic() + 10
        while _C.runnable_elsewhere() < 4:
            assert time.monotonic() < end, "busy processes are not seen"
            time.sleep(0.02)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_other_programs_change_no_bit(kind, two_threads, request):
    """Next to busy processes, threads that wait for each other are replaced by one."""
    torch.manual_seed(0)
    layer, x = kind.layer(16, 192), torch.randn(40, 1, 16)
    expected = train(layer, x)
    request.getfixturevalue("four_busy_processes")
    for _ in range(8):
        found = train(layer, x)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
