"""Hosts with addresses of their own on this machine: network namespaces on a bridge, which a test may cut."""
import itertools
import os
import pathlib
import shutil
import subprocess
import unittest

AS_HOST = pathlib.Path(__file__).with_name("as_host.sh")
NOBODY = "02:00:00:00:00:01"  # a link address that no host has

numbers = itertools.count()

# Refused at once by a host that is there, since nothing listens; another error or none where it is not.
TRY_TO_CONNECT = "import socket, sys\ntry: socket.create_connection((sys.argv[1], 9), 10)\nexcept ConnectionRefusedError: sys.exit(7)"


def skip(why):
    raise unittest.SkipTest(f"no hosts in network namespaces here: {why}")


def ip(*arguments, otherwise=skip):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        otherwise(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")


def fail(why):
    raise RuntimeError(why)


class Hosts:
    """`count` hosts, numbered from 1. Skips the test, with the reason, where the machine does not allow them."""

    def __init__(self, count, clean_up):
        for tool in ("ip", "unshare", "hostname"):
            if shutil.which(tool) is None:
                skip(f"there is no `{tool}`")
        if os.geteuid() != 0:
            skip("that takes root")
        letter = chr(ord("a") + next(numbers))  # what a test leaves may take a while to go
        self.name, self.count = f"fy{os.getpid()}{letter}h", count
        self.net, self.bridge = f"10.77.{os.getpid() % 250}", f"fy{os.getpid()}{letter}b"
        ip("link", "add", self.bridge, "type", "bridge")
        clean_up(subprocess.run, ["ip", "link", "del", self.bridge])
        ip("addr", "add", f"{self.net}.254/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for number in range(1, count + 1):
            ip("netns", "add", self.space(number))
            clean_up(subprocess.run, ["ip", "netns", "del", self.space(number)])
            ip("link", "add", self.port(number), "type", "veth", "peer", "name", "eth0", "netns", self.space(number))
            ip("link", "set", self.port(number), "master", self.bridge, "up")
            ip("-n", self.space(number), "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", self.space(number), "link", "set", device, "up")
        self.require_reach()

    def space(self, number):
        return f"{self.name}{number}"

    def port(self, number):
        return f"{self.bridge}{number}"

    def address(self, number):
        return f"{self.net}.{number}"

    def require_reach(self):
        for number in range(2, self.count + 1):
            tried = subprocess.run(["ip", "netns", "exec", self.space(1), "python3", "-c", TRY_TO_CONNECT,
                                    self.address(number)], capture_output=True)
            if tried.returncode != 7:
                skip("they do not reach each other over a bridge")

    def cut(self, one, other):
        """Nothing that these two send to each other arrives any more; no connection is told."""
        for at, to in ((one, other), (other, one)):
            ip("-n", self.space(at), "neigh", "replace", self.address(to), "lladdr", NOBODY, "dev", "eth0", "nud",
               "permanent", otherwise=fail)

    def unplug(self, number):
        ip("link", "set", self.port(number), "down", otherwise=fail)

    def plug_in(self, number):
        ip("link", "set", self.port(number), "up", otherwise=fail)

    def launcher(self):
        """Options of oshrun: one process on each host, over TCP."""
        addresses = ",".join(self.address(number) for number in range(1, self.count + 1))
        net = f"{self.net}.0/24"
        return ["--host", addresses, "--mca", "plm_rsh_agent", AS_HOST, "--mca", "oob_tcp_if_include", net, "--mca",
                "btl_tcp_if_include", net, "-x", "UCX_TLS", "-x", "UCX_NET_DEVICES"]

    def environment(self):
        return {"FERRY_HOSTS": self.name, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
