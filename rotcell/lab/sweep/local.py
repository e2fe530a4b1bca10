"""Computes runs in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from rotcell.lab.memory import keep_freed_memory
from rotcell.lab.sweep.engine import ATTEMPTS, Advanced, Ended, Engine, Event, Run, Work

_SPAWN: Final = multiprocessing.get_context("spawn")


def local_engine(workers: int, threads: int = 1, models: Path | None = None) -> Engine:
    """So many processes with so many threads each; models are kept in a folder if there is one."""

    def engine(runs: Iterable[Run], work: Work) -> Generator[Event, None, None]:
        coming = iter(runs)
        again: deque[Run] = deque()  # runs whose worker died
        lost: dict[Run, int] = {}
        pool: list[_Worker] = []
        try:
            while True:
                idle = [worker for worker in pool if worker.run is None]
                while idle or len(pool) < workers:
                    run = again.popleft() if again else next(coming, None)
                    if run is None:
                        break
                    if not idle:
                        idle.append(_Worker(work, threads, models))
                        pool.append(idle[-1])
                    idle.pop().start(run)
                busy = {worker.connection: worker for worker in pool if worker.run is not None}
                if not busy:
                    return
                for connection in wait(list(busy)):
                    worker = busy[connection]  # type: ignore[index]
                    lost_run = worker.run
                    assert lost_run is not None
                    event = worker.hear()
                    if event is not None:
                        yield event
                        continue
                    # The worker is gone, and the run with it.
                    pool.remove(worker)
                    how = worker.end()
                    lost[lost_run] = lost.get(lost_run, 0) + 1
                    if lost[lost_run] < ATTEMPTS:
                        again.append(lost_run)
                    else:
                        error = f"the worker process died {ATTEMPTS} times ({how})"
                        yield Ended(work.lost(lost_run, error))
        finally:
            for worker in pool:
                worker.stop()

    return engine


class _Worker:
    """A process and the connection to it."""

    def __init__(self, work: Work, threads: int, models: Path | None) -> None:
        self.run: Run | None = None
        self.connection, theirs = _SPAWN.Pipe()
        self._process: SpawnProcess = _SPAWN.Process(
            target=_serve, args=(theirs, work, threads, models), daemon=True
        )
        self._process.start()
        theirs.close()  # so that the end of the process ends the connection

    def start(self, run: Run) -> None:
        self.run = run
        with suppress(OSError):  # it died idle: hear() will find out
            self.connection.send(run)

    def hear(self) -> Event | None:
        """The next event; None when the process is gone."""
        try:
            event: Event = self.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(event, Ended):
            self.run = None
        return event

    def end(self) -> str:
        """Wait for the process to end; returns how it ended, in words."""
        self.connection.close()
        self._process.join()
        code = self._process.exitcode or 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def stop(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


def _serve(connection: Connection, work: Work, threads: int, models: Path | None) -> None:
    """The main loop of a worker process: compute runs until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    keep_freed_memory()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            run: Run = connection.recv()
            model = None if models is None else models / f"{run.name}.pt"
            result = work.compute(run, threads, model, partial(_report_epoch, connection, run))
            connection.send(Ended(result))


def _report_epoch(connection: Connection, run: Run, epoch: int) -> None:
    connection.send(Advanced(run, epoch))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
