"""A filter that runs in the kernel: uevents that cannot matter never reach us.

On a container host each pod makes and removes network interfaces and overlay mounts, and each of
those is a burst of uevents. A flood of them fills the receive buffer, and then the one event about
hardware is lost with the rest.

The kernel runs a classic BPF program on each message before it is queued. The one here drops
events of network interfaces, backing device infos and loop devices below `/devices/virtual`, and
of everything that is no device, by comparing the first bytes of the kernel's `action@/path`.
udevd's messages begin with other bytes and pass. A second, complete check follows in
`core.decode.uevent`: this one only has to be cheap and must never drop too much.
"""

import ctypes
import socket
import struct

SO_ATTACH_FILTER = 26
"""From `asm-generic/socket.h`; the socket module does not name it."""

NOISE = (b"net/", b"bdi/")
"""What follows `/devices/virtual/` in noise, besides `block/loop`."""

AT_SIGNS = (3, 4, 6, 7)
"""Where the `@` stands: behind add; move, bind; remove, change, unbind, online; offline."""

# Classic BPF opcodes, from linux/bpf_common.h.
_LOAD_WORD, _LOAD_BYTE, _LOAD_LENGTH = 0x20, 0x30, 0x80
_JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x15, 0x35, 0x06

_ACCEPT, _DROP = 0xFFFFFFFF, 0

_VIRTUAL = b"/devices/virtual/"
_SHORTEST = 64
"""Messages shorter than this are accepted: a load behind the end would drop them."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("first", ctypes.POINTER(_Instruction)))


def attach(sock: socket.socket) -> bool:
    """Puts the filter on a netlink socket. False if the kernel does not take it: then we read the
    noise ourselves."""
    code = [_Instruction(*instruction) for instruction in program()]
    instructions = (_Instruction * len(code))(*code)
    description = _Program(len(code), instructions)
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(description))
    except OSError:
        return False
    return True


def program() -> list[tuple[int, int, int, int]]:
    """The filter: one block for each place where the `@` may stand, then acceptance."""
    code = [(_LOAD_LENGTH, 0, 0, 0), (_JUMP_AT_LEAST, 1, 0, _SHORTEST), (_RETURN, 0, 0, _ACCEPT)]
    for at in AT_SIGNS:
        block = _block(at + 1)
        code += [(_LOAD_BYTE, 0, 0, at), (_JUMP_EQUAL, 0, len(block), ord("@")), *block]
    return [*code, (_RETURN, 0, 0, _ACCEPT)]


def _block(path: int) -> list[tuple[int, int, int, int]]:
    """Decides about a message whose device path begins at this offset; never falls through."""
    drop, accept = (_RETURN, 0, 0, _DROP), (_RETURN, 0, 0, _ACCEPT)
    code: list[tuple[int, int, int, int]] = []
    # `/devices` or it is no device; the first eight bytes, one word at a time.
    for start in (0, 4):
        code += [*_unless(path + start, _VIRTUAL[start : start + 4]), drop]
    # `/virtual/` or it lies on a bus.
    for start in (8, 12, 13):
        code += [*_unless(path + start, _VIRTUAL[start : start + 4]), accept]
    kind = path + len(_VIRTUAL)
    for word in NOISE:
        code += [(_LOAD_WORD, 0, 0, kind), (_JUMP_EQUAL, 0, 1, _word(word)), drop]
    # `block/loop`: its first and its last word tell it from every other kind.
    code += [*_unless(kind, b"bloc"), accept, *_unless(kind + 6, b"loop"), accept, drop]
    return code


def _unless(offset: int, text: bytes) -> list[tuple[int, int, int, int]]:
    """Runs the next instruction unless these four bytes stand there."""
    return [(_LOAD_WORD, 0, 0, offset), (_JUMP_EQUAL, 1, 0, _word(text))]


def _word(text: bytes) -> int:
    number: int = struct.unpack(">I", text)[0]
    return number
