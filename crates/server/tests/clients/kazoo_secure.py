#!/usr/bin/env python3
"""Checks a server at HOST:PORT with kazoo over TLS and SASL.

The folder that is the second argument has ca.pem, cert.pem and key.pem; the user is alice, the password "sword fish".
"""

import os
import signal
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, Id, Permissions

LIMIT_S = 10
TOTAL_LIMIT_S = 45


def check(what, condition):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(what, flush=True)


def main():
    address, folder = sys.argv[1:3]
    signal.alarm(TOTAL_LIMIT_S)

    def client(password="sword fish", sasl=True):
        options = {"mechanism": "DIGEST-MD5", "username": "alice", "password": password}
        return KazooClient(
            hosts=address,
            timeout=LIMIT_S,
            use_ssl=True,
            ca=os.path.join(folder, "ca.pem"),
            certfile=os.path.join(folder, "cert.pem"),
            keyfile=os.path.join(folder, "key.pem"),
            sasl_options=options if sasl else None,
        )

    alice = client()
    alice.start(timeout=LIMIT_S)
    check("connects by TLS and SASL", alice.connected)
    root = f"/kazoo_secure-{os.getpid()}"
    only = [ACL(Permissions.ALL, Id("sasl", "alice"))]
    alice.create(root, b"x" * 500_000, acl=only)
    check("reads what it wrote", alice.get(root)[0] == b"x" * 500_000)

    other = client(sasl=False)
    other.start(timeout=LIMIT_S)
    try:
        other.get(root)
        check("a node of a user is closed to others", False)
    except NoAuthError:
        check("a node of a user is closed to others", True)
    other.stop()

    wrong = client(password="wrong")
    try:
        # Some versions return from this without a session.
        wrong.start(timeout=LIMIT_S)
        wrong.get_children("/")
        is_served = True
    except Exception:
        is_served = False
    check("a wrong password is refused", not is_served)
    wrong.stop()

    alice.delete(root)
    alice.stop()
    print("ok")


main()
