"""kazoo as a peer: reads tasks, a line each, answers each with a line of JSON (see ../../src/peer.rs)."""

import json
import sys
import threading
import time

from kazoo.client import KazooClient

SESSION_TIMEOUT_S = 30
END_MAX_S = 150
WRITES_ONE_IN = 10
PERMITS = 5
# What stands in a queue for each consumer before the first is taken, and what an item holds.
BACKLOG = 50
PAYLOAD = b"x" * 100


class Tally:
    """Counts turns, of several threads."""

    def __init__(self, contenders):
        self.contenders = contenders
        self.lock = threading.Lock()
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


WRITES_ONE_IN = 10
PERMITS = 5
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
            # Everybody is inside, and looks only when everybody has left.
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


for line in sys.stdin:
    try:
        answer = run(*line.split())
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
