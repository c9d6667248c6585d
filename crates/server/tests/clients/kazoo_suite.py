#!/usr/bin/env python3
"""Runs kazoo's own test suite against a server started by a given command.

    kazoo_suite.py [--keyword EXPR] COMMAND ARGUMENT... {config}

`{config}` is replaced by the path of a zoo.cfg for one standalone server. The tests are those of
the kazoo package beside this interpreter, which also needs pytest and objgraph. kazoo's harness
would start a Java ensemble of three; its module for that is replaced by one that runs the command.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import types

DESELECTED = {
    "test_client.py::TestSSLClient": "the server has no TLS port",
    "test_client.py::TestClient::test_update_host_list": "stops one server of an ensemble",
    "test_client.py::TestReconfig": "grows and shrinks an ensemble",
    "test_connection.py::TestReadOnlyMode": "stops two servers of an ensemble of three",
    "test_sasl.py": "SASL is not configured",
}

# The last line is the super user "super:test", which some tests authenticate as.
CONFIG = """\
tickTime=2000
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=
"""

START_LIMIT_S = 30
STOP_LIMIT_S = 10


class Server:
    """One server process, which may be stopped and run again on the same port and data."""

    def __init__(self, command):
        self.command = command
        self.folder = tempfile.mkdtemp(prefix="kazoo-suite-")
        self.port = free_port()
        self.process = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    # Only tests which are not run would connect to it.
    secure_address = address

    @property
    def client_port(self):
        return self.port

    @property
    def running(self):
        return self.process is not None

    def run(self):
        if self.running:
            return
        data = os.path.join(self.folder, "data")
        config = os.path.join(self.folder, "zoo.cfg")
        os.makedirs(data, exist_ok=True)
        with open(config, "w") as file:
            file.write(CONFIG.format(data=data, port=self.port))
        command = [word.replace("{config}", config) for word in self.command]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_until_serving()

    def wait_until_serving(self):
        deadline = time.monotonic() + START_LIMIT_S
        while "Mode: " not in four_letter_word(self.port, b"srvr"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("server did not start:\n" + "".join(self.get_logs()))
            time.sleep(0.05)

    def stop(self):
        if not self.running:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"server did not stop within {STOP_LIMIT_S} s") from None
        finally:
            self.process = None

    def reset(self):
        self.stop()
        shutil.rmtree(os.path.join(self.folder, "data"), ignore_errors=True)

    def destroy(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def get_logs(self, num_lines=100):
        try:
            with open(os.path.join(self.folder, "log")) as log:
                return log.readlines()[-num_lines:]
        except FileNotFoundError:
            return []


class Cluster(list):
    """What kazoo's harness calls a cluster, of one server."""

    def start(self):
        for server in self:
            server.run()

    def stop(self):
        for server in self:
            server.stop()

    def reset(self):
        for server in self:
            server.reset()

    def terminate(self):
        for server in self:
            server.destroy()

    def get_logs(self):
        return [line for server in self for line in server.get_logs()]


class Deselect:
    """The pytest plugin which leaves out the tests listed above."""

    def pytest_collection_modifyitems(self, config, items):
        out = [item for item in items if any(name in item.nodeid for name in DESELECTED)]
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)

    def pytest_terminal_summary(self, terminalreporter):
        for name, reason in DESELECTED.items():
            terminalreporter.write_line(f"not run: {name}: {reason}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def four_letter_word(port, word):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(word)
            reply = b""
            while piece := connection.recv(4096):
                reply += piece
            return reply.decode()
    except OSError:
        return ""


def replace_cluster_module(command):
    module = types.ModuleType("kazoo.testing.common")
    module.ZookeeperCluster = lambda **_: Cluster([Server(command)])
    sys.modules[module.__name__] = module
    # The harness asks for a version before it asks for a cluster.
    os.environ["ZOOKEEPER_VERSION"] = "3.8.0"


def main():
    parser = argparse.ArgumentParser(usage="kazoo_suite.py [--keyword EXPR] COMMAND... {config}")
    parser.add_argument("--keyword", help="run only the tests that pytest's -k would select")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("no server command given")

    import pytest

    replace_cluster_module(arguments.command)
    # Nothing is written beside the installed tests, and no settings are read from above them.
    options = ["-p", "no:cacheprovider", "-c", os.devnull, "-q", "-rfE", "--disable-warnings"]
    if arguments.keyword:
        options += ["-k", arguments.keyword]
    return pytest.main(options + ["--pyargs", "kazoo.tests"], plugins=[Deselect()])


if __name__ == "__main__":
    sys.exit(main())
