"""kazoo as a peer: reads tasks, a line each, answers each with a line of JSON (see ../../src/peer.rs)."""

import json
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.recipe.cache import TreeCache, TreeEvent

SESSION_TIMEOUT_S = 30
END_MAX_S = 150
WRITES_ONE_IN = 10
PERMITS = 5
# What stands in a queue for each consumer before the first is taken, and what an item holds.
BACKLOG = 50
PAYLOAD = b"x" * 100
# How many nodes stand in a directory of what is cached, of how many one changes, and how many in one transaction.
CHILDREN = 1000
CHANGES_ONE_IN = 10
BATCH = 500


class Tally:
    """Counts turns, of several threads."""

    def __init__(self, contenders):
        self.contenders = contenders
        self.turns = self.hand_overs = 0
        self.last = None
        self.over = self.ended = False
        self.error = None
        self.lock = threading.Lock()

    def turn(self, number):
        with self.lock:
            self.turns += 1
            self.hand_overs += self.last != number
            self.last = number


def lock(client, path, number, tally):
    lock = client.Lock(path)
    while not tally.over:
        lock.acquire()
        tally.turn(number)
        lock.release()


def shared(client, path, number, tally):
    read, write = client.ReadLock(path), client.WriteLock(path)
    turn = number
    while not tally.over:
        side = read if turn % WRITES_ONE_IN else write
        side.acquire()
        tally.turn(number)
        side.release()
        turn += 1


def permits(client, path, number, tally):
    semaphore = client.Semaphore(path, max_leases=PERMITS)
    while not tally.over:
        semaphore.acquire()
        tally.turn(number)
        semaphore.release()


def queue(client, path, number, tally):
    queue = client.LockingQueue(path)
    queue.put_all([PAYLOAD] * BACKLOG)
    while not tally.over:
        queue.put(PAYLOAD)
        queue.get()
        if queue.consume():
            tally.turn(number)


def election(client, path, number, tally):
    election = client.Election(path)
    while not tally.over:
        election.run(tally.turn, number)


def double_barrier(client, path, number, tally):
    # At two paths in turn: at one, a quick member would meet the slow of the round before.
    rounds = 0
    while not tally.ended:
        barrier = client.DoubleBarrier(f"{path}/{rounds % 2}", tally.contenders)
        rounds += 1
        barrier.enter()
        if number == 0:
            tally.turn(number)
            # All members are inside, and check only when all have left.
            tally.ended = tally.over
        barrier.leave()


RECIPES = {
    "lock": lock,
    "shared": shared,
    "permits": permits,
    "queue": queue,
    "election": election,
    "double-barrier": double_barrier,
}


def run(recipe, address, path, contenders, sessions, warm_up_ms, duration_ms):
    contend = RECIPES[recipe]
    clients = [KazooClient(address, timeout=SESSION_TIMEOUT_S) for _ in range(int(sessions))]
    for client in clients:
        client.start()
    tally = Tally(int(contenders))

    def thread(number):
        try:
            contend(clients[number % len(clients)], path, number, tally)
        except Exception as error:
            tally.error = error

    threads = [threading.Thread(target=thread, args=(number,), daemon=True) for number in range(int(contenders))]
    for each in threads:
        each.start()
    time.sleep(int(warm_up_ms) / 1000)
    before = time.monotonic(), tally.turns, tally.hand_overs
    time.sleep(int(duration_ms) / 1000)
    after = time.monotonic(), tally.turns, tally.hand_overs
    tally.over = True
    deadline = time.monotonic() + END_MAX_S
    for each in threads:
        each.join(max(0, deadline - time.monotonic()))
    stuck = sum(each.is_alive() for each in threads)
    for client in clients:
        client.stop()
        client.close()
    if tally.error:
        raise tally.error
    if stuck:
        raise TimeoutError(f"{stuck} contenders had no turn within {END_MAX_S} s")
    seconds, turns, hand_overs = (b - a for a, b in zip(before, after))
    return {"turns": turns, "hand_overs": hand_overs, "all_turns": tally.turns, "seconds": seconds}


def connected(address):
    client = KazooClient(address, timeout=SESSION_TIMEOUT_S)
    client.start()
    return client


def finish(client):
    client.stop()
    client.close()


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def outcome(turns, seconds, all_turns=None, resident_kib=0):
    return {
        "turns": turns,
        "hand_overs": 0,
        "all_turns": all_turns or turns,
        "seconds": seconds,
        "resident_kib": resident_kib,
    }


def cached(nodes):
    """What is cached."""
    return f"/cached/{nodes}"


def load(client, nodes):
    cache = TreeCache(client, cached(nodes))
    loaded = threading.Event()

    def listen(event):
        if event.event_type == TreeEvent.INITIALIZED:
            loaded.set()

    cache.listen(listen)
    start = time.monotonic()
    cache.start()
    if not loaded.wait(END_MAX_S):
        raise TimeoutError(f"not loaded within {END_MAX_S} s")
    return cache, time.monotonic() - start


def cache(address, path, nodes, sessions, warm_up_s, duration_s):
    client = connected(address)
    cache, seconds = load(client, nodes)
    resident = resident_kib()
    last = nodes - 1
    if cache.get_data(f"{cached(nodes)}/{last // CHILDREN}/{last % CHILDREN}") is None:
        raise ValueError("nodes are missing")
    cache.close()
    finish(client)
    return outcome(nodes, seconds, resident_kib=resident)


def cache_changes(address, path, nodes, sessions, warm_up_s, duration_s):
    client, writer = connected(address), connected(address)
    cache, _ = load(client, nodes)
    changes = nodes // CHANGES_ONE_IN
    data = path.ljust(100).encode()
    seen = set()
    all_seen = threading.Event()

    def listen(event):
        if event.event_type == TreeEvent.NODE_UPDATED and event.event_data.data == data:
            seen.add(event.event_data.path)
            if len(seen) == changes:
                all_seen.set()

    cache.listen(listen)
    start = time.monotonic()
    writes = []
    for first in range(0, changes, BATCH):
        write = writer.transaction()
        for node in range(first, min(first + BATCH, changes)):
            write.set_data(f"{cached(nodes)}/{node // CHILDREN}/{node % CHILDREN}", data)
        writes.append(write.commit_async())
    if not all_seen.wait(END_MAX_S):
        raise TimeoutError(f"{len(seen)} of {changes} changes seen within {END_MAX_S} s")
    seconds = time.monotonic() - start
    for write in writes:
        write.get()
    cache.close()
    finish(client)
    finish(writer)
    return outcome(changes, seconds)


def watchers(address, path, count, sessions, warm_up_s, duration_s):
    writer = connected(address)
    writer.create(path, b"0")
    told = threading.Semaphore(0)
    clients = [connected(address) for _ in range(count)]
    for client in clients:
        client.DataWatch(path, lambda data, stat: told.release())

    def all_told():
        for _ in range(count):
            if not told.acquire(timeout=END_MAX_S):
                raise TimeoutError(f"not told within {END_MAX_S} s")

    all_told()
    changes = 0

    def change(until):
        nonlocal changes
        while time.monotonic() < until:
            changes += 1
            writer.set(path, str(changes).encode())
            all_told()

    change(time.monotonic() + warm_up_s)
    before = time.monotonic(), changes
    change(time.monotonic() + duration_s)
    seconds, turns = time.monotonic() - before[0], (changes - before[1]) * count
    for client in [*clients, writer]:
        finish(client)
    return outcome(turns, seconds, (changes + 1) * count)


def exists(address, path, count, sessions, warm_up_s, duration_s):
    client = connected(address)
    all_turns, latencies = 0, []
    until = time.monotonic() + warm_up_s
    while time.monotonic() < until:
        client.exists(path)
        all_turns += 1
    start = now = time.monotonic()
    while now - start < duration_s:
        before = now
        if client.exists(path) is None:
            raise LookupError(f"{path} is missing")
        now = time.monotonic()
        latencies.append((now - before) * 1e6)
    finish(client)
    latencies.sort()
    at = lambda share: latencies[round((len(latencies) - 1) * share)]
    answer = outcome(len(latencies), now - start, all_turns + len(latencies))
    return answer | {"round_trips": {"p50_us": at(0.5), "p99_us": at(0.99)}}


STATE = {"exists": exists, "cache": cache, "cache-changes": cache_changes, "watchers": watchers}


def answer_to(recipe, address, path, contenders, sessions, warm_up_ms, duration_ms):
    if recipe in STATE:
        seconds = int(warm_up_ms) / 1000, int(duration_ms) / 1000
        return STATE[recipe](address, path, int(contenders), int(sessions), *seconds)
    return run(recipe, address, path, contenders, sessions, warm_up_ms, duration_ms)


for line in sys.stdin:
    try:
        answer = answer_to(*line.split())
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
