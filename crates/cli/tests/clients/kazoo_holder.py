#!/usr/bin/env python3
"""Holds one of each of kazoo's locks at ADDRESS below PATH, says so, and goes on until its input ends."""

import sys

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, Semaphore

LIMIT_S = 30

address, path = sys.argv[1:]
client = KazooClient(address)
client.start(timeout=10)
for held in (
    Lock(client, f"{path}/lock", "kazoo's own"),
    ReadLock(client, f"{path}/shared"),
    Semaphore(client, f"{path}/permits", max_leases=2),
):
    if not held.acquire(timeout=LIMIT_S):
        sys.exit("not had")
print("held", flush=True)
sys.stdin.read()
client.stop()
