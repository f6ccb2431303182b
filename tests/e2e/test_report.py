"""report.html as a browser shows it: the charts are drawn, nothing fails, nothing is loaded, and samples stay text."""

import http.server
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import unittest

import browser

BIN = pathlib.Path(os.environ["GPT_BIN"])


class RecordingProxy(http.server.ThreadingHTTPServer):
    """Whatever a browser with this proxy asks for is refused and remembered."""

    def __init__(self):
        self.requests = requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                requests.append(self.path)
                self.send_error(404)

            do_CONNECT = do_POST = do_GET

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # the browser did not wait for the answer

    def close(self):
        self.shutdown()
        self.server_close()


@unittest.skipUnless(browser.BROWSER, browser.MISSING)
class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([BIN / "write_report", cls.folder], check=True)
        proxy = RecordingProxy()
        cls.addClassCleanup(proxy.close)
        done = cls.browse("--dump-dom", "--enable-logging=stderr", f"--proxy-server=127.0.0.1:{proxy.server_port}")
        cls.page, cls.messages, cls.requests = done.stdout, done.stderr, proxy.requests

    @classmethod
    def browse(cls, *flags):
        return browser.browse(cls.folder / "report.html", cls.folder / "profile", *flags)

    def text_of(self, id):
        return browser.text_of(self.page, id)

    def test_charts_are_drawn(self):
        self.assertIn('data-charts="10"', self.page)
        figures = re.findall(r"<figure.*?</figure>", self.page, re.S)
        self.assertEqual(len(figures), 10)
        for figure in figures:
            self.assertIn("<canvas", figure)
            self.assertRegex(figure, "dygraph-axis-label-x[^>]*>[0-9]")

    def test_axes_have_titles_and_memory_begins_at_zero(self):
        figures = dict(re.findall(r'<figure[^>]*data-chart="(\w+)"(.*?)</figure>', self.page, re.S))
        for name, unit in (("loss", "nats per token"), ("peak_memory_mb", "MB"), ("grad_norm", "norm")):
            self.assertRegex(figures[name], r'dygraph-xlabel"[^>]*>step<')
            self.assertRegex(figures[name], rf'dygraph-ylabel"[^>]*>{unit}<')
        self.assertRegex(figures["peak_memory_mb"], r'dygraph-axis-label-y"[^>]*>0<')

    def test_curves_stand_over_tokens_or_time_too(self):
        for axis, title, last in (("tokens", "training tokens", "M"), ("time", "training time in seconds", "")):
            with self.subTest(axis):
                page = browser.browse(f"{self.folder}/report.html#{axis}", self.folder / "profile", "--dump-dom").stdout
                self.assertEqual(page.count(f">{title}<"), 10)
                figure = re.search(r'<figure[^>]*data-chart="loss".*?</figure>', page, re.S)[0]
                self.assertRegex(figure, rf"dygraph-axis-label-x[^>]*>[0-9.]+{last}<")

    def test_the_head_tells_how_far_it_is(self):
        self.assertEqual(self.text_of("name"), "shakespeare <&> char")
        self.assertEqual(self.text_of("status"), "Finished: step 2,000 of 2,000 (100.0%).")

    def test_a_page_that_nobody_writes_any_more_says_so(self):
        """The clock of whoever looks at it, and not that of the run, tells how old it is."""
        page = (self.folder / "report.html").read_text().replace('"has_ended":true', '"has_ended":false')
        for name, written in (("silent", 0), ("fresh", 10**11)):
            (self.folder / f"{name}.html").write_text(re.sub(r'"written":\d+', f'"written":{written}', page))
        status = lambda name: browser.text_of(browser.browse(self.folder / f"{name}.html", self.folder / "profile", "--dump-dom").stdout, "status")
        self.assertRegex(status("silent"), "^Last heard of at step 2,000 of 2,000 .* Reload this page: if it stays as it is, the run was killed")
        self.assertRegex(status("fresh"), "^Training: step 2,000 of 2,000 .*, as of ")

    def test_the_device_has_a_section_of_its_own(self):
        section = self.page[self.page.index('id="device"'):self.page.index('id="samples"')]
        self.assertEqual(re.findall(r'data-chart="(\w+)"', section), ["gpu_busy", "device_memory"])
        self.assertIn("<li>The GPU is busy 93 % of the time, at 4", section)
        self.assertIn("Last reading: busy 93 %, memory 72.0 GB of 80.0 GB.", section)

    def test_nothing_fails(self):
        self.assertNotIn("CONSOLE", self.messages)
        self.assertRegex(self.page, r'id="failure" hidden=""')

    def test_nothing_is_loaded(self):
        of_the_browser = re.compile(r"[/.](google|googleapis|gvt1)\.com[:/]")
        self.assertEqual([request for request in self.requests if not of_the_browser.search("/" + request)], [])

    def test_a_hostile_sample_is_text(self):
        self.assertNotIn("data-hacked", self.page)
        shown = self.page[self.page.index('id="samples"'):self.page.index('id="events"')]
        self.assertNotIn("<img", shown)
        self.assertIn("&lt;/script&gt;&lt;script&gt;", shown)
        self.assertIn("Step 2,000", shown)
        self.assertIn("Earlier samples (17)", shown)

    def test_events_of_both_starts_are_there(self):
        shown = self.page[self.page.index('id="events"'):]
        for what in ("skipped an update", "saved ckpt.pt", "resumed"):
            self.assertIn(what, shown)

    def test_light_and_dark_mode_look_different(self):
        pictures = []
        for scheme in (1, 0):
            picture = self.folder / f"{scheme}.png"
            self.browse(f"--blink-settings=preferredColorScheme={scheme}", "--window-size=900,900", f"--screenshot={picture}")
            pictures.append(picture.read_bytes())
            self.assertGreater(len(pictures[-1]), 20_000)  # an empty page has a tenth of that
        self.assertNotEqual(*pictures)


if __name__ == "__main__":
    unittest.main()
