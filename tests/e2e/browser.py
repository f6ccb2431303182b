"""Pages as a browser shows them, for the end-to-end tests."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import time
import urllib.request

import programs

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "no chromium here: apt-get install chromium"
DRIVER = BROWSER and shutil.which("chromedriver")
DRIVER_MISSING = "no chromedriver here: apt-get install chromium chromium-driver"
CONTROL, ENTER, TAB, SPACE = "\ue009", "\ue007", "\ue004", " "  # as WebDriver writes these keys
# Without a sandbox, which root and containers cannot have: the pages are our own.
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update")


def browse(page: pathlib.Path, profile: pathlib.Path, *flags) -> subprocess.CompletedProcess:
    return subprocess.run([BROWSER, *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=5000", *flags, f"file://{page}"],
                          capture_output=True, text=True, timeout=1200, check=True)


def text_of(dom: str, id: str) -> str:
    return html.unescape(re.search(rf'id="{id}"[^>]*>([^<]*)<', dom)[1])


class Session:
    """A browser that a test types and clicks in, by the protocol WebDriver (https://www.w3.org/TR/webdriver2/)."""

    def __init__(self, profile: pathlib.Path):
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = next(found[1] for found in map(re.compile(r"started successfully on port (\d+)").search, self.driver.stdout) if found)
        self.address = f"http://127.0.0.1:{port}/session"
        options = {"binary": BROWSER, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        session = self.ask("POST", "", {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}})
        self.address += "/" + session["sessionId"]

    def ask(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=programs.HANGS) as answer:
            return json.load(answer)["value"]

    def open(self, address):
        self.ask("POST", "/url", {"url": address})

    def reload(self):
        self.ask("POST", "/refresh", {})

    def element(self, id):
        return "/element/" + next(iter(self.ask("POST", "/element", {"using": "css selector", "value": "#" + id}).values()))

    def type(self, id, text):
        self.ask("POST", self.element(id) + "/clear", {})
        self.ask("POST", self.element(id) + "/value", {"text": text})

    def press(self, id, keys):
        self.ask("POST", self.element(id) + "/value", {"text": keys})

    def keys(self, keys):
        """Typed wherever the focus is."""
        actions = [{"type": action, "value": key} for key in keys for action in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def look_as(self, width, colours="light"):
        """A screen so wide, whose user likes light or dark colours: a window has a least width."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": colours}])

    def devtools(self, command, **params):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def overflow(self):
        """By how many pixels the page is wider than the screen."""
        return self.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def click(self, id):
        self.ask("POST", self.element(id) + "/click", {})

    def text(self, id):
        return self.ask("GET", self.element(id) + "/property/textContent")

    def value(self, id):
        return self.ask("GET", self.element(id) + "/property/value")

    def script(self, code):
        return self.ask("POST", "/execute/sync", {"script": code, "args": []})

    def is_enabled(self, id):
        return self.ask("GET", self.element(id) + "/enabled")

    def wait_for(self, holds):
        end = time.monotonic() + programs.HANGS
        while not holds():
            assert time.monotonic() < end, "nothing happens in the browser"
            time.sleep(0.02)

    def close(self):
        try:
            self.ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(timeout=programs.HANGS)
            self.driver.stdout.close()
