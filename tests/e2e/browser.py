"""Pages as a browser shows them, for the end-to-end tests."""

import html
import pathlib
import re
import shutil
import subprocess

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "no chromium here: apt-get install chromium"


def browse(page: pathlib.Path, profile: pathlib.Path, *flags) -> subprocess.CompletedProcess:
    """Without a sandbox, which root and containers cannot have: the file is our own."""
    return subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                           "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}",
                           "--virtual-time-budget=5000", *flags, f"file://{page}"],
                          capture_output=True, text=True, timeout=1200, check=True)


def text_of(dom: str, id: str) -> str:
    return html.unescape(re.search(rf'id="{id}"[^>]*>([^<]*)<', dom)[1])
