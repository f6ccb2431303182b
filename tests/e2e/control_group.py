"""A control group with a limit of memory, versions 1 and 2, where this process may make one."""

import contextlib
import os
import pathlib
import unittest

ROOT = pathlib.Path("/sys/fs/cgroup")


def own_groups():
    """Folders of the group that this process is in, with the name of the file that limits its memory."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            yield ROOT / group.lstrip("/"), "memory.max"
        elif "memory" in controllers.split(","):
            yield ROOT / "memory" / group.lstrip("/"), "memory.limit_in_bytes"


@contextlib.contextmanager
def limited_to(limit: int):
    """Gives a function that moves the process that calls it into a new group: a preexec_fn. Skips the test where there can be none."""
    for folder, name in own_groups():
        group = folder / f"gpt-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        try:
            yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        finally:
            group.rmdir()
        return
    raise unittest.SkipTest("no control group can be made here")
