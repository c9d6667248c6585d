"""Reads a node as a user of SASL DIGEST-MD5, prints it, and writes to it.

usage: PASSWORD=... kazoo_sasl.py SERVER USER PATH
"""

import os
import sys

from kazoo.client import KazooClient

server, user, path = sys.argv[1:]
options = {
    "mechanism": "DIGEST-MD5",
    "username": user,
    "password": os.environ["PASSWORD"],
}
client = KazooClient(hosts=server, sasl_options=options)
client.start(timeout=30)
print(client.get(path)[0].decode())
client.set(path, b"from kazoo")
client.stop()
