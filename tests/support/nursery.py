"""Imports our programs once, and becomes one of them in a child of its own whenever it is told to.

What a program imports costs it most of a second of its start. `python -m tests.support.nursery N`: each
message on socket N is an `Order`, with three descriptors: stdout, stderr, and a socket on which the child's
id is told, and its exit code once it has ended. It ends with whoever holds the other end, which is `forked`.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress

import msgspec

from common.follow import follow

PROGRAMS = ("ingest", "dispatcher", "ops")
MOST = 2**18  # bytes of an order


class Order(msgspec.Struct):
    """The module to run, its words, where, and in which environment."""

    module: str
    words: list[str]
    directory: str
    environ: dict[str, str]


class Nursery:
    """Its children by the descriptors that tell of their end: id, and whom to tell."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._selector = selectors.PollSelector()  # nothing that a child would share
        self._selector.register(line, selectors.EVENT_READ)
        self._children: dict[int, tuple[int, socket.socket]] = {}

    def run(self) -> Order | None:
        """None when nobody holds the line any more; in a child, what it is to be."""
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._children:
                    self._ended(key.fd)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self._line, MOST, 3)
                if not message:
                    return None
                order = msgspec.json.decode(message, type=Order)
                if self._forked(*descriptors):
                    return order

    def _forked(self, out: int, err: int, told: int) -> bool:
        """Whether this is the child."""
        parent, listener = os.getpid(), socket.socket(fileno=told)
        pid = os.fork()
        if pid == 0:
            follow(parent, signal.SIGKILL)
            os.dup2(out, 1)
            os.dup2(err, 2)
            self._leave()
            listener.close()
        else:
            ending = os.pidfd_open(pid)
            self._children[ending] = pid, listener
            self._selector.register(ending, selectors.EVENT_READ)
            listener.sendall(f"{pid}\n".encode())
        os.close(out)
        os.close(err)
        return pid == 0

    def _leave(self) -> None:
        """A child has nothing to do with the others."""
        self._selector.close()
        self._line.close()
        for ending, (_, listener) in self._children.items():
            os.close(ending)
            listener.close()
        self._children.clear()

    def _ended(self, ending: int) -> None:
        pid, listener = self._children.pop(ending)
        self._selector.unregister(ending)
        os.close(ending)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with listener, suppress(BrokenPipeError):  # the test may be over
            listener.sendall(f"{code}\n".encode())


def main() -> None:
    """Import, and serve; a child goes on as its program."""
    for name in PROGRAMS:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith(".__main__"):  # which is run
                importlib.import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = Nursery(socket.socket(fileno=int(sys.argv[1]))).run()
    if order is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(order.directory)
        os.environ.clear()
        os.environ.update(order.environ)
        sys.argv[1:] = order.words
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
