"""The program that lives in a private network namespace, and does there what tests ask for.

It sends uevents, opens netlink sockets and hands them out, and starts agents: forked from here an
agent has its libraries loaded already, and is a process of its own all the same. One request is
one JSON object on a socket, and one answer a number.

Starting it and talking to it is left to `tests.fakes.network`.
"""

import fcntl
import itertools
import json
import os
import pkgutil
import socket
import sys
import termios
from typing import Any

import liken_events.cli  # noqa: F401  # loaded here, so that a child has it already
from liken_events.simulate.uevents import NETLINK_KOBJECT_UEVENT, UeventSender
from tests.fakes.screen import ENVIRONMENT, OVERRIDES

LONGEST = 128 * 1024
"""Bytes of a request at most: a burst of some hundred uevents."""


def serve(channel: socket.socket, sender: UeventSender) -> None:
    """Answers until the other side is gone."""
    while True:
        message, descriptors, *_ = socket.recv_fds(channel, LONGEST, 2)
        if not message:
            return
        request: dict[str, Any] = json.loads(message)
        match request:
            case {"do": "send", "payloads": payloads, "repeat": repeat}:
                raw = [payload.encode("latin-1") for payload in payloads]
                floods = itertools.repeat(raw, repeat)
                answer(channel, sender.send_many(itertools.chain.from_iterable(floods)))
            case {"do": "listen", "groups": groups}:
                with listen(groups) as made:
                    answer(channel, 0, made.fileno())
            case {"do": "start", "argv": argv, "main": name, "environ": environ}:
                pid = os.fork()
                if pid == 0:
                    channel.close()
                    os.environ.update(environ)
                    attach(*descriptors)
                    raise SystemExit(pkgutil.resolve_name(name)(argv))
                answer(channel, pid)
            case {"do": "poll", "pid": pid}:
                ended, status = os.waitpid(pid, os.WNOHANG)
                answer(channel, os.waitstatus_to_exitcode(status) if ended else None)
        for descriptor in descriptors:
            os.close(descriptor)


def attach(stderr: int, stdout: int | None = None) -> None:
    """Gives this process its streams. A terminal becomes its own, with its Ctrl-C, and its
    environment that of a terminal."""
    os.dup2(stderr, sys.stderr.fileno())
    if stdout is not None:
        os.dup2(stdout, sys.stdout.fileno())
        if os.isatty(stdout):
            os.setsid()
            fcntl.ioctl(stdout, termios.TIOCSCTTY, 0)
            for name in OVERRIDES:
                os.environ.pop(name, None)
            os.environ.update(ENVIRONMENT)


def listen(groups: int) -> socket.socket:
    """A plain socket to which the kernel broadcasts uevents if it is in their group."""
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT)
    made.bind((0, groups))
    return made


def answer(channel: socket.socket, number: int | None, *descriptors: int) -> None:
    socket.send_fds(channel, [json.dumps(number).encode()], descriptors)


if __name__ == "__main__":
    with UeventSender() as uevents, socket.socket(fileno=int(sys.argv[1])) as requests:
        serve(requests, uevents)
