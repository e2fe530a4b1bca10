"""Computes runs on a Ray cluster, or on a Ray started for the occasion on this machine."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from typing import Any

from rotcell.lab.errors import DataError, NotInstalledError
from rotcell.lab.memory import keep_freed_memory
from rotcell.lab.sweep.engine import ATTEMPTS, Ended, Engine, Event
from rotcell.lab.tasks.babi.data.source import Source, TaskQuestions
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.job import run_job
from rotcell.lab.tasks.babi.sweep.results import Result
from rotcell.lab.training.environment import environment


def ray_engine(address: str | None, workers: int | None, threads: int = 1) -> Engine:
    """Tasks of the cluster at `address`; None starts one here with so many workers.

    The data travels with the runs; the nodes need rotcell and nothing else.
    """
    try:
        import ray
    except ImportError as error:
        raise NotInstalledError("Ray is not installed: pip install 'ray>=2.10'") from error

    def engine(runs: Iterable[RunSettings], source: Source) -> Generator[Event, None, None]:
        if address is None:
            ray.init(
                num_cpus=(workers or 1) * threads, include_dashboard=False, log_to_driver=False
            )
        else:
            ray.init(address=address, log_to_driver=False)
        try:
            yield from _run_all(ray, runs, source, threads)
        finally:
            ray.shutdown()

    return engine


def _run_all(
    ray: Any, runs: Iterable[RunSettings], source: Source, threads: int
) -> Generator[Event, None, None]:
    # A run never raises, so whatever makes Ray try again is a lost worker or node.
    remote = ray.remote(num_cpus=threads, max_retries=ATTEMPTS - 1)(_run)
    data: dict[int, Any] = {}  # task -> its questions in the store
    # Not all at once: a window keeps a cluster of any size busy, and a stop short.
    slots = 2 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
    waiting = iter(runs)
    under_way: dict[Any, RunSettings] = {}
    while True:
        for run in itertools.islice(waiting, slots - len(under_way)):
            if run.task not in data:
                data[run.task] = ray.put(_load(source, run.task))
            under_way[remote.remote(run.plain(), data[run.task], threads)] = run
        if not under_way:
            return
        (ready,), _ = ray.wait(list(under_way), num_returns=1)
        run = under_way.pop(ready)
        try:
            result = Result.from_plain(ray.get(ready))
        except ray.exceptions.RayError as error:
            result = Result(run, None, None, f"lost by Ray: {error}", 0.0, environment())
        yield Ended(result)


def _load(source: Source, task: int) -> TaskQuestions | str:
    """The questions, or why there are none."""
    try:
        return source.load(task)
    except (DataError, OSError) as error:
        return str(error)


def _run(plain: dict[str, Any], questions: TaskQuestions | str, threads: int) -> dict[str, Any]:
    """What a worker of the cluster does."""
    keep_freed_memory()

    def load() -> TaskQuestions:
        if isinstance(questions, str):
            raise DataError(questions)
        return questions

    return run_job(RunSettings.from_plain(plain), load, threads=threads).plain()
