#!/usr/bin/env python3
"""Checks a server at HOST:PORT with kazoo: operations, watches, ACLs, sessions and recipes."""

import signal
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import EventType
from kazoo.security import make_digest_acl

# Nothing here should take long; a wait that reaches this has failed.
LIMIT_S = 10
# Calls of kazoo wait for an answer for ever: the signal ends the process.
TOTAL_LIMIT_S = 30


def check(what, condition):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(what, flush=True)


def refused(error, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except error:
        return True
    return False


def eventually(predicate):
    deadline = time.monotonic() + LIMIT_S
    while not predicate():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Events:
    """A watcher that collects its events, to be awaited."""

    def __init__(self):
        self.seen = []
        self.changed = threading.Condition()

    def __call__(self, *event):
        with self.changed:
            self.seen.append(event)
            self.changed.notify_all()

    def await_event(self, matches):
        with self.changed:
            return self.changed.wait_for(lambda: any(matches(*e) for e in self.seen), LIMIT_S)


def of(kind, path):
    return lambda event: event.type == kind and event.path == path


class Clients:
    """Connected clients in one fresh chroot, all stopped at the end."""

    def __init__(self, address):
        self.address = address
        self.chroot = f"/kazoo_smoke-{uuid.uuid4().hex}"
        self.open = []
        with_root = self.connect(chroot="")
        with_root.create(self.chroot)

    def connect(self, chroot=None, **options):
        chroot = self.chroot if chroot is None else chroot
        client = KazooClient(self.address + chroot, timeout=LIMIT_S, **options)
        self.open.append(client)
        client.start(timeout=LIMIT_S)
        return client

    def stop(self):
        for client in self.open:
            client.stop()
            client.close()


def operations(clients):
    zk = clients.connect()
    check("create gives the path", zk.create("/a", b"one") == "/a")
    check("create of an existing node is refused", refused(NodeExistsError, zk.create, "/a"))
    check("create without a parent is refused", refused(NoNodeError, zk.create, "/no/child"))
    path, stat = zk.create("/with-stat", b"12345", include_data=True)
    check("create2 gives the stat", path == "/with-stat" and stat.dataLength == 5)
    data, stat = zk.get("/a")
    check("get gives data and stat", data == b"one" and stat.version == 0)
    check("set raises the version", zk.set("/a", b"two", version=0).version == 1)
    stale = refused(BadVersionError, zk.set, "/a", b"", version=0)
    check("set with a wrong version is refused", stale)
    check("set is seen", zk.get("/a")[0] == b"two")
    check("exists gives the stat", zk.exists("/a").mzxid > zk.exists("/a").czxid)
    check("exists gives nothing for no node", zk.exists("/none") is None)
    names = [zk.create("/a/n-", sequence=True) for _ in range(3)]
    check("sequence numbers rise", names == [f"/a/n-{n:010}" for n in range(3)])
    check("children are listed", sorted(zk.get_children("/a")) == [n[3:] for n in names])
    children, stat = zk.get_children("/a", include_data=True)
    check("children come with the stat", len(children) == 3 and stat.numChildren == 3)
    check("delete of a parent is refused", refused(NotEmptyError, zk.delete, "/a"))
    stale = refused(BadVersionError, zk.delete, names[0], version=7)
    check("delete with a wrong version is refused", stale)
    zk.delete(names[0])
    check("delete of no node is refused", refused(NoNodeError, zk.delete, names[0]))
    zk.delete("/a", recursive=True)
    check("recursive delete", zk.exists("/a") is None)
    check("sync gives the path", zk.sync("/") == "/")
    big = b"x" * 1_000_000
    zk.create("/big", big)
    check("almost a megabyte of data", zk.get("/big")[0] == big)


def ephemerals(clients):
    zk, other = clients.connect(), clients.connect()
    path = other.create("/ephemeral-", ephemeral=True, sequence=True)
    check("an ephemeral names its owner", zk.exists(path).ephemeralOwner == other.client_id[0])
    gone = Events()
    zk.exists(path, watch=gone)
    other.stop()
    check("it is deleted with its session", gone.await_event(of(EventType.DELETED, path)))


def watches(clients):
    zk, other = clients.connect(), clients.connect()
    created, changed, children = Events(), Events(), Events()
    zk.exists("/w", watch=created)
    other.create("/w", b"0")
    check("exists watch sees the creation", created.await_event(of(EventType.CREATED, "/w")))
    zk.get("/w", watch=changed)
    zk.get_children("/w", watch=children)
    other.set("/w", b"1")
    check("data watch sees the change", changed.await_event(of(EventType.CHANGED, "/w")))
    other.create("/w/child")
    check("child watch sees the child", children.await_event(of(EventType.CHILD, "/w")))
    data, names = Events(), Events()
    zk.DataWatch("/w", data)
    zk.ChildrenWatch("/w", names)
    for value in (b"2", b"3"):
        other.set("/w", value)
        seen = data.await_event(lambda d, _stat, _event: d == value)
        check(f"DataWatch sees {value.decode()}", seen)
    other.create("/w/second")
    both = names.await_event(lambda c: sorted(c) == ["child", "second"])
    check("ChildrenWatch sees the second child", both)
    other.delete("/w", recursive=True)
    deleted = data.await_event(lambda d, stat, _event: d is stat is None)
    check("DataWatch sees the deletion", deleted)


def transactions(clients):
    zk = clients.connect()
    zk.create("/t", b"")
    good = zk.transaction()
    good.check("/t", 0)
    good.create("/t/a", b"a")
    good.create("/t/s-", sequence=True)
    good.set_data("/t", b"done")
    good.delete("/t/a")
    results = good.commit()
    check("a transaction gives each result", results[:3] == [True, "/t/a", "/t/s-0000000001"])
    check("and the new stat", results[3].version == 1 and results[4] is True)
    check("and has taken effect", zk.get("/t")[0] == b"done")
    check("as a whole", zk.get_children("/t") == ["s-0000000001"])
    bad = zk.transaction()
    bad.create("/t/never", b"")
    bad.check("/t", 0)
    bad.create("/t/nor-this", b"")
    errors = [type(result) for result in bad.commit()]
    said = errors == [RolledBackError, BadVersionError, RuntimeInconsistency]
    check("a failed one says where", said)
    check("and has no effect", zk.exists("/t/never") is None)


def acls(clients):
    owner = clients.connect(auth_data=[("digest", "owner:secret")])
    stranger = clients.connect()
    acl = make_digest_acl("owner", "secret", all=True)
    owner.create("/private", b"mine", acl=[acl])
    check("the owner reads", owner.get("/private")[0] == b"mine")
    check("a stranger may not", refused(NoAuthError, stranger.get, "/private"))
    check("nor write", refused(NoAuthError, stranger.set, "/private", b""))
    check("nor create below", refused(NoAuthError, stranger.create, "/private/child"))
    stranger.add_auth("digest", "owner:secret")
    check("until authenticated", stranger.get("/private")[0] == b"mine")
    acls, stat = owner.get_acls("/private")
    check("the ACL is as given", acls == [acl] and stat.aversion == 0)
    readable = make_digest_acl("owner", "secret", read=True)
    check("a new ACL raises its version", owner.set_acls("/private", [readable]).aversion == 1)
    check("and is in force", refused(NoAuthError, owner.set, "/private", b""))


def sessions(clients):
    zk, observer = clients.connect(), clients.connect()
    states = Events()
    zk.add_listener(states)
    first = zk.client_id
    path = zk.create("/of-the-session", ephemeral=True)
    zk._connection._socket.shutdown(2)
    check("a cut connection suspends", states.await_event(lambda s: s == KazooState.SUSPENDED))
    check("and is made anew", states.await_event(lambda s: s == KazooState.CONNECTED))
    check("with the same session", zk.client_id == first and zk.exists(path) is not None)

    # The session is ended from a second connection to it, as its owner would not notice otherwise.
    twin = clients.connect(client_id=first)
    gone = Events()
    observer.exists(path, watch=gone)
    twin.stop()
    ended = gone.await_event(of(EventType.DELETED, path))
    check("closing the session elsewhere ends it", ended)
    check("the client learns it is lost", states.await_event(lambda s: s == KazooState.LOST))
    renewed = eventually(lambda: zk.connected and zk.client_id[0] not in (0, first[0]))
    check("and gets another", renewed)


def lock(clients):
    holders, inside, entered = [], 0, 0

    def contend(zk):
        nonlocal inside, entered
        for _ in range(3):
            with zk.Lock("/lock"):
                inside += 1
                entered += 1
                holders.append(inside)
                inside -= 1

    in_parallel(contend, [clients.connect() for _ in range(3)])
    check("Lock lets one in at a time", holders == [1] * 9 and entered == 9)
    zk, other = clients.connect(), clients.connect()
    with zk.ReadLock("/rw"):
        shared, exclusive = other.ReadLock("/rw"), other.WriteLock("/rw")
        check("ReadLock is shared", shared.acquire(blocking=False))
        check("WriteLock waits for readers", not exclusive.acquire(blocking=False))
        shared.release()
    check("WriteLock has its turn", exclusive.acquire(timeout=LIMIT_S))


def semaphore(clients):
    zk = [clients.connect() for _ in range(3)]
    permits = [c.Semaphore("/semaphore", max_leases=2) for c in zk]
    check("Semaphore has two leases", permits[0].acquire(False) and permits[1].acquire(False))
    check("and no third", not permits[2].acquire(False))
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(permits[2].acquire, True, LIMIT_S)
        permits[0].release()
        check("until one is returned", third.result(LIMIT_S))


def election(clients):
    zk = [clients.connect() for _ in range(2)]
    led, go_on = [], threading.Event()

    def lead(number):
        led.append(number)
        go_on.wait(LIMIT_S)

    elections = [c.Election("/election", str(n)) for n, c in enumerate(zk)]
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(elections[0].run, lead, 0)]
        check("Election has a leader", eventually(lambda: led == [0]))
        runs.append(pool.submit(elections[1].run, lead, 1))
        queued = eventually(lambda: elections[0].contenders() == ["0", "1"])
        check("and contenders in order", queued)
        check("and only one leads", led == [0])
        go_on.set()
        for run in runs:
            run.result(LIMIT_S)
    check("then the next", led == [0, 1])


def queues(clients):
    zk = clients.connect()
    queue = zk.Queue("/queue")
    for value, priority in ((b"b", 100), (b"c", 200), (b"a", 1)):
        queue.put(value, priority)
    taken = [queue.get() for _ in range(4)]
    check("Queue is in order of priority", taken == [b"a", b"b", b"c", None])
    locking, other = zk.LockingQueue("/locking"), clients.connect().LockingQueue("/locking")
    locking.put_all([b"1", b"2"])
    taken = (locking.get(LIMIT_S), other.get(LIMIT_S))
    check("LockingQueue locks what it gives", taken == (b"1", b"2"))
    check("release gives it back", other.release())
    check("for another", locking.consume() and locking.get(LIMIT_S) == b"2")
    check("consume removes it", locking.consume() and len(locking) == 0)


def barriers(clients):
    zk, other = clients.connect(), clients.connect()
    barrier = zk.Barrier("/barrier")
    barrier.create()
    check("Barrier holds", not other.Barrier("/barrier").wait(timeout=0.1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.Barrier("/barrier").wait, LIMIT_S)
        check("and is removed", barrier.remove())
        check("and lets go", waiting.result(LIMIT_S))
    arrived, leaving, counts = [], [], []
    # Who leaves takes the word away that all are there, and kazoo's one who has not asked for it yet waits for ever.
    all_inside = threading.Barrier(3)

    def pass_through(client):
        double = client.DoubleBarrier("/double", 3)
        arrived.append(client)
        double.enter()
        counts.append(len(arrived))
        all_inside.wait(LIMIT_S)
        leaving.append(client)
        double.leave()
        counts.append(len(leaving))

    in_parallel(pass_through, [clients.connect() for _ in range(3)])
    check("DoubleBarrier gathers three, and lets three go", counts == [3] * 6)


def counter(clients):
    def add(zk):
        count = zk.Counter("/counter")
        for _ in range(10):
            count += 1

    in_parallel(add, [clients.connect() for _ in range(3)])
    check("Counter loses no addition", clients.connect().Counter("/counter").value == 30)


def party(clients):
    zk, other = clients.connect(), clients.connect()
    mine, theirs = zk.Party("/party", "mine"), zk.Party("/party", "theirs")
    mine.join()
    theirs.join()
    check("Party knows who joined", sorted(other.Party("/party")) == ["mine", "theirs"])
    mine.leave()
    check("and who left", list(other.Party("/party")) == ["theirs"])


def partitioner(clients):
    zk = [clients.connect() for _ in range(2)]
    members = [
        client.SetPartitioner("/partition", range(5), identifier=str(number), time_boundary=0.2)
        for number, client in enumerate(zk)
    ]

    def settled():
        for member in members:
            # Who was alone when the boundary passed took the whole set, and must give it back.
            if member.release:
                member.release_set()
        return all(member.acquired for member in members)

    check("SetPartitioner settles", eventually(settled))
    parts = [list(member) for member in members]
    check("and hands out each once", all(parts) and sorted(sum(parts, [])) == list(range(5)))


def four_letter_words(clients):
    zk = clients.connect()
    check("ruok is answered", zk.command(b"ruok") == "imok")
    check("the version is at least 3.8", zk.server_version() >= (3, 8))
    check("mntr has its lines", "zk_znode_count\t" in zk.command(b"mntr"))


def in_parallel(function, arguments):
    with ThreadPoolExecutor(len(arguments)) as pool:
        runs = [pool.submit(function, argument) for argument in arguments]
        return [run.result(2 * LIMIT_S) for run in runs]


def main():
    signal.alarm(TOTAL_LIMIT_S)
    clients = Clients(sys.argv[1])
    for part in (
        operations, ephemerals, watches, transactions, acls, sessions, lock, semaphore, election,
        queues, barriers, counter, party, partitioner, four_letter_words,
    ):
        part(clients)
    clients.stop()
    print("ok")


if __name__ == "__main__":
    main()
