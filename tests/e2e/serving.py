"""A gpt-serve that a test starts, and what clients send it."""

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time

import programs


class Server:
    """Answers at `port` once this object exists. `log` has the lines of its standard error so far."""

    def __init__(self, *words, env=None):
        self.process = subprocess.Popen(programs.command("gpt-serve", "--port", 0, *words), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.log = []
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            address = re.match(r"Serving .* at http://\S+:(\d+): ", line)
            if address:
                break
        else:
            raise AssertionError(f"it has not started: {self.log}")
        self.port = int(address[1])
        self.reader = threading.Thread(target=lambda: self.log.extend(line.rstrip("\n") for line in self.process.stderr))
        self.reader.start()

    def wait(self):
        """The exit status."""
        status = self.process.wait(timeout=programs.HANGS)
        self.reader.join()
        self.process.stderr.close()
        return status

    def close(self):
        if self.process.returncode is None:
            self.process.kill()
            self.wait()

    def ask(self, method, path, body=None, headers=None):
        """The status and the answer, parsed if it is JSON."""
        answer = self.begin(method, path, body, headers)
        with contextlib.closing(answer.connection):
            text = answer.read().decode()
            is_json = answer.getheader("Content-Type") == "application/json"
            return answer.status, json.loads(text) if is_json else text

    def begin(self, method, path, body=None, headers=None):
        """The answer, of which only the headers have been read; its `connection` is to be closed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=programs.HANGS)
        data = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        answer.connection = connection
        return answer

    def complete(self, **fields):
        status, answer = self.ask("POST", "/v1/completions", fields)
        assert status == 200, answer
        return answer

    def refused(self, status, **fields):
        """The error that the completion is answered with."""
        got, answer = self.ask("POST", "/v1/completions", fields)
        assert got == status and sorted(answer) == ["error"], (got, answer)
        assert sorted(answer["error"]) == ["code", "message", "param", "type"], answer
        return answer["error"]

    def stream(self, **fields):
        """The data of each event, the last of which is "[DONE]" or missing."""
        answer = self.begin("POST", "/v1/completions", {**fields, "stream": True})
        with contextlib.closing(answer.connection):
            assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream"), answer.read()
            return list(events(answer))

    def send_raw(self, data: bytes):
        """A connection that has sent this, and for which the system keeps little of what is not read."""
        connection = socket.socket()
        connection.settimeout(programs.HANGS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(data)
        return connection

    def wait_for_line(self, pattern):
        """Until the log has a line in which this is found: it is read apart from the answers, and may come after them."""
        while True:
            may_come = self.reader.is_alive()
            if any(re.search(pattern, line) for line in self.log):
                return
            assert may_come, f"it has ended without a line '{pattern}': {self.log}"
            time.sleep(0.01)

    def wait_until(self, **state):
        """Until /health says so."""
        while True:
            health = self.ask("GET", "/health")[1]
            if all(health[name] == value for name, value in state.items()):
                return health
            time.sleep(0.01)


def events(answer):
    for event in iter_events(answer):
        data = event.removeprefix("data: ")
        assert data != event, event
        yield data if data == "[DONE]" else json.loads(data)


def iter_events(answer):
    text = ""
    while piece := answer.read1():
        text += piece.decode()
        *whole, text = text.split("\n\n")
        yield from whole
    assert text == "", text


def raw_completion(**fields) -> bytes:
    body = json.dumps(fields).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
