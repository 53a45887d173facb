"""Writers that are killed at a random moment of their work."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from random import Random


def killed_at_random(
    kills: int, chance: Random, writer: Callable[[], Callable[[], object]]
) -> Iterator[None]:
    """Fork children that write without end and kill each after a while; the caller looks at what each left.

    Args:
        kills: How many children.
        chance: Draws how long each is let live, at most 0.3 seconds. The first is let write once besides,
            however slow the disk.
        writer: Called in each child; gives what that does again and again.
    """
    for kill in range(kills):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            write = writer()
            while True:
                write()
                os.write(write_end, b"x")
        os.close(write_end)
        if kill == 0:
            assert os.read(read_end, 1), "the writer failed"
        time.sleep(chance.uniform(0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read_end)
        yield
