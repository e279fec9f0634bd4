"""The machine that was measured on: a number without it means nothing."""

import os
import platform

from liken_events.core.model.json import Json


def describe() -> dict[str, Json]:
    """CPU model, cores, kernel, Python, and how busy the machine was before."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu_model() -> str:
    """As `/proc/cpuinfo` has it; on ARM it names none, and the architecture must do."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()
