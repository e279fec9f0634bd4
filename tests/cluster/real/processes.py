"""Programs as child processes: each logs to a file, and none outlives the one that started it."""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from tests.cluster.real.polling import poll

END_SECONDS = 10.0
"""Bound for a program's end after SIGTERM; then it is killed."""


class ProgramFailed(Exception):
    """A program ended, or did not do in time what was waited for; the message has its log."""


class Process:
    """A program that runs, the leader of a process group of its own.

    The kernel kills it when the *thread* that started it ends, even by SIGKILL
    (`PR_SET_PDEATHSIG`): start programs in the main thread.

    Attributes:
        name: for logs and messages.
        log: the path of its log, which a program of the same name before it began.
    """

    def __init__(
        self,
        name: str,
        line: Sequence[str],
        directory: str,
        environment: Mapping[str, str] | None = None,
        *,
        is_wrapped: bool = False,
    ) -> None:
        """Starts it.

        Args:
            name: see there.
            line: the program and its arguments.
            directory: where it runs and its log is.
            environment: all of its environment; None for the one that is here.
            is_wrapped: the line is one of `nsenter`, which forks and passes no signals on.
        """
        self.name = name
        self._is_wrapped = is_wrapped
        self.log = os.path.join(directory, f"{name}.log")
        with open(self.log, "ab") as log:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", *line],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def child(self) -> int | None:
        """The number of its first child; None if there is none (yet)."""
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            numbers = file.read().split()
        return int(numbers[0]) if numbers else None

    def is_running(self) -> bool:
        """Whether it has not ended. It is not reaped here: its group's number stays taken."""
        if self._child.returncode is not None:
            return False
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, how) is None

    def until(self, condition: Callable[[], object], what: str, *, seconds: float) -> None:
        """Waits for something that this program is to do.

        Args:
            condition: asked again and again until the answer is true.
            what: it is, for the message.
            seconds: bound.

        Raises:
            ProgramFailed: the program ended, or the time is over.
        """
        wait_for(
            condition, what, seconds=seconds, is_running=self.is_running, failure=self._failure
        )

    def wait(self, *, seconds: float) -> None:
        """Waits for a program that ends by itself.

        Raises:
            ProgramFailed: it failed, or the time is over.
        """
        try:
            status = self._child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"took more than {seconds:g} s") from None
        if status != 0:
            raise self._failure(f"ended with status {status}")

    def stop(self) -> None:
        """Ends it with SIGTERM, and what is left of its group with SIGKILL. May be repeated."""
        if self.is_running():
            program = self.child() if self._is_wrapped else self.pid
            if program is not None:
                os.kill(program, signal.SIGTERM)
            poll(lambda: not self.is_running(), END_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends it and its group as a crash does. May be repeated."""
        if self._child.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()

    def log_end(self, lines: int = 30) -> str:
        """The end of its log."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def _failure(self, reason: str) -> ProgramFailed:
        return ProgramFailed(f"{self.name} {reason}; its log ends with:\n{self.log_end()}")


def wait_for(
    condition: Callable[[], object],
    what: str,
    *,
    seconds: float,
    is_running: Callable[[], bool],
    failure: Callable[[str], ProgramFailed],
) -> None:
    """Waits for something that a program is to do, wherever it runs.

    Args:
        condition: asked again and again until the answer is true.
        what: it is, for the message.
        seconds: bound.
        is_running: whether the program has not ended.
        failure: what to raise for a reason.

    Raises:
        ProgramFailed: the program ended, or the time is over.
    """
    holds = False

    def is_settled() -> bool:
        nonlocal holds
        holds = bool(condition())
        return holds or not is_running()

    if not poll(is_settled, seconds):
        raise failure(f"took more than {seconds:g} s for {what}")
    if not holds:
        raise failure(f"ended before {what}")
