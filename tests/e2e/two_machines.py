"""Two machines with a cable between them: two network namespaces of this one, where it has them and this process may make them."""

import contextlib
import os
import subprocess
import unittest

ADDRESSES = ("10.213.7.1", "10.213.7.2")  # of the two; nothing outside can reach them
PORT = 29500  # nobody else's, in a namespace that is new


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Machine:
    def __init__(self, number):
        self.number = number
        self.name = self.interface = f"gpt-{os.getpid()}-{number}"  # an interface's name has 15 letters at most
        ip("netns", "add", self.name)

    def remove(self):
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)

    def command(self, *words):
        """The command that runs this one there."""
        return ["ip", "netns", "exec", self.name, *words]

    def plug_in(self, rate):
        ip("link", "set", self.interface, "netns", self.name)
        ip("-netns", self.name, "address", "add", f"{ADDRESSES[self.number]}/24", "dev", self.interface)
        for interface in ("lo", self.interface):
            ip("-netns", self.name, "link", "set", interface, "up")
        limit = ("qdisc", "add", "dev", self.interface, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        subprocess.run(self.command("tc", *limit), check=True, capture_output=True, text=True)

    def unplug(self):
        ip("-netns", self.name, "link", "set", self.interface, "down")

    def bytes_sent(self):
        counter = self.command("cat", f"/sys/class/net/{self.interface}/statistics/tx_bytes")
        return int(subprocess.run(counter, check=True, capture_output=True, text=True).stdout)

    def environment(self, size=2):
        """That of the one process here, as torchrun would set it."""
        return {**os.environ, "RANK": str(self.number), "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT)}


@contextlib.contextmanager
def joined_at(rate):
    """Two machines; `rate` as tc writes it: 1gbit. Skips the test where there can be none."""
    with contextlib.ExitStack() as stack:
        try:
            machines = []
            for number in range(2):
                machines.append(Machine(number))
                stack.callback(machines[-1].remove)
            ip("link", "add", machines[0].interface, "type", "veth", "peer", "name", machines[1].interface)
            for machine in machines:
                machine.plug_in(rate)
        except FileNotFoundError as missing:
            raise unittest.SkipTest(f"no {missing.filename} here: install iproute2") from None
        except subprocess.CalledProcessError as refused:
            raise unittest.SkipTest(f"no network namespaces can be joined here: {refused.stderr.strip()}") from None
        yield machines
