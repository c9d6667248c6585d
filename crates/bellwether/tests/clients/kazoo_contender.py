#!/usr/bin/env python3
"""Stands in a line again and again with kazoo: ADDRESS PATH lock|shared ROUNDS LAYOUT.

Prints for each hold what it was, the sequence of its node, and when it began and ended, by the monotonic clock in
nanoseconds. With the layout `curator` the nodes are named as Curator's, which kazoo reads and writes as well.
"""

import sys
import time

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, WriteLock

# A wait that reaches this has failed.
LIMIT_S = 60


class CuratorLock(Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-"]


class CuratorReadLock(Lock):
    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]


class CuratorWriteLock(Lock):
    _NODE_NAME = "-__WRIT__"
    _EXCLUDE_NAMES = ["__WRIT__", "__READ__"]


def hold(kind, lock):
    if not lock.acquire(timeout=LIMIT_S):
        sys.exit("no turn")
    entered = time.monotonic_ns()
    # A moment, so that two at once are seen.
    while time.monotonic_ns() - entered < 100_000:
        pass
    print(kind, lock.node[-10:], entered, time.monotonic_ns())
    lock.release()


def main():
    address, path, what, rounds, layout = sys.argv[1:]
    client = KazooClient(address)
    client.start(timeout=10)
    if layout == "curator":
        kinds = CuratorLock, CuratorReadLock, CuratorWriteLock
    else:
        kinds = Lock, ReadLock, WriteLock
    lock, read, write = (kind(client, path) for kind in kinds)
    for turn in range(int(rounds)):
        if what == "lock":
            hold("lock", lock)
        elif turn % 3 == 1:
            hold("write", write)
        else:
            hold("read", read)
    client.stop()
    client.close()
    print("ok")


main()
