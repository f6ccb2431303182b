"""What the tests of gpt-generate share: a model that has learned something in a second, and a terminal to run it in."""

import fcntl
import os
import pathlib
import pty
import select
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import programs


class TrainedModel(unittest.TestCase):
    """cls.root / "run" is a run over sentences of lower-case letters and digits, with a few characters beyond ASCII."""
    OPTIONS = {}  # of the run, beside programs.TINY

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        text = programs.write_text(cls.root)
        text.write_text(text.read_text() + "a café, a naïve fox; 語\n")
        programs.train(cls.root / "run", text, **cls.OPTIONS)

    def words(self, *more):
        return ("--checkpoint", self.root / "run", "--device", "cpu", *more)

    def generate(self, *words, code=0, **options):
        return programs.run("gpt-generate", *self.words(*words), check_code=code, **options)

    def start(self, *words, **streams):
        """A process that the test stops itself; streams as of subprocess.Popen."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        process = subprocess.Popen(programs.command("gpt-generate", *self.words(*words)), **streams)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


class Terminal:
    """A program in a terminal of its own, whose keys are sent and whose screen is waited for."""

    def __init__(self, command, environment=None, prepare=lambda terminal: None, **streams):
        """`streams` (stdin, stdout, stderr) are the terminal unless given; `prepare` sets its modes."""
        self.keyboard, terminal = pty.openpty()
        prepare(terminal)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes_before = termios.tcgetattr(terminal)

        def take_terminal():
            os.setsid()
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal, **streams}
        environment = {**os.environ, "TERM": "xterm", **(environment or {})}
        self.process = subprocess.Popen(command, preexec_fn=take_terminal, env=environment, **streams)
        os.close(terminal)  # the program's alone: when it has ended, reading ends as well
        self.shown = b""

    def send(self, keys):
        os.write(self.keyboard, keys.encode())

    def read(self, deadline):
        """Adds to `shown`; False when there is no more to come."""
        if not select.select([self.keyboard], [], [], max(0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"nothing more came; the last was: {self.shown}")
        try:
            self.shown += os.read(self.keyboard, 4096)
        except OSError:  # how Linux says that the other side is closed
            return False
        return True

    def read_until(self, text, seconds=programs.HANGS):
        """What came up to and with `text`."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self.shown:
            if not self.read(deadline):
                raise AssertionError(f"it has ended without {text!r}; the last was: {self.shown}")
        end = self.shown.index(text.encode()) + len(text.encode())
        result, self.shown = self.shown[:end], self.shown[end:]
        return result.decode()

    def wait(self, seconds=programs.HANGS):
        """The exit status. The rest of what came is in `shown`."""
        deadline = time.monotonic() + seconds
        while self.read(deadline):
            pass
        return self.process.wait(timeout=seconds)

    def modes(self):
        return termios.tcgetattr(self.keyboard)

    def close(self):
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        os.close(self.keyboard)
