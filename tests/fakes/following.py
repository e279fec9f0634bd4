"""A command that follows a machine, as a process of its own, with all that it prints."""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from tests.fakes.network import PrivateNetwork
from tests.fakes.screen import Screen
from tests.fakes.waiting import until


class Following:
    """One run of a command in a private network namespace. Use as a context manager.

    Args:
        network: the namespace.
        words: what is typed.
        screen: the terminal that standard output and standard error are; None for pipes.
        main: the function that is run, as `module:name`.
        environ: further environment variables.

    Attributes:
        pid: process id.
    """

    def __init__(
        self,
        network: PrivateNetwork,
        *words: str,
        screen: Screen | None = None,
        main: str = "liken_events.cli:main",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.pid = 0
        self._network = network
        self._words = words
        self._screen = screen
        self._main = main
        self._environ = environ
        self._texts = [b"", b""]
        self._readers: list[threading.Thread] = []
        self._status: int | None = None

    def __enter__(self) -> Self:
        if self._screen is not None:
            self._start(self._screen.descriptor, self._screen.descriptor)
            return self
        pipes = [os.pipe(), os.pipe()]
        self._start(pipes[1][1], pipes[0][1])
        for index, (ours, theirs) in enumerate(pipes):
            os.close(theirs)
            reader = threading.Thread(target=self._read, args=(index, ours), daemon=True)
            reader.start()
            self._readers.append(reader)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
        while self.status is None:
            pass
        self._join()

    @property
    def status(self) -> int | None:
        """The exit status, or minus the signal that ended it; None while it runs."""
        if self._status is None:
            self._status = self._network.poll(self.pid)
        return self._status

    @property
    def out(self) -> str:
        """What it printed so far."""
        return self._texts[0].decode("utf-8") if self._screen is None else self._screen.plain

    @property
    def lines(self) -> list[str]:
        """The whole lines of that."""
        return self.out.rpartition("\n")[0].split("\n") if "\n" in self.out else []

    @property
    def err(self) -> str:
        """What it wrote to standard error so far."""
        return self._texts[1].decode("utf-8")

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits until the condition holds; says what was printed if it does not come to hold."""
        try:
            await until(lambda: condition() or self.status is not None, seconds=20)
        finally:
            assert condition(), f"{self.out}\n{self.err}"

    async def ended(self) -> int:
        """Waits for its end; returns its exit status."""
        await self.until(lambda: self.status is not None)
        self._join()
        assert self.status is not None
        return self.status

    async def stop(self, number: signal.Signals) -> int:
        """Sends a signal; returns the exit status."""
        os.kill(self.pid, number)
        return await self.ended()

    def _start(self, stderr: int, stdout: int) -> None:
        self.pid = self._network.start(
            self._words, stderr, stdout, main=self._main, environ=self._environ
        )

    def _read(self, index: int, descriptor: int) -> None:
        with open(descriptor, "rb", buffering=0) as pipe:
            while found := pipe.read(65536):
                self._texts[index] += found

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(timeout=10)
