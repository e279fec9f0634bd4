"""The guest itself: one that hangs is ended, and what it printed is known."""

import os
import tempfile

import pytest

from tests.vm.control import GuestFailed
from tests.vm.machine import Machine
from tests.vm.qmp import Qmp


def test_a_guest_that_hangs_is_ended_and_its_console_kept() -> None:
    with tempfile.TemporaryDirectory(prefix="vm-") as directory:
        with Machine(directory, []) as guest:
            guest.qmp.do("stop")
            with pytest.raises(GuestFailed, match="waited 2 s for run"):
                guest.control.do("run", within=2, argv=["true"])
        with pytest.raises(OSError, match=r"refused|No such file"):
            Qmp(os.path.join(directory, "qmp"))  # nobody listens any more
        assert "virtme" in guest.console()
