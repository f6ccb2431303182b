"""What a run leaves to look at: report.html, event files for TensorBoard, the curve on the terminal, and gpt-diagnose --run."""

import json
import os
import re
import unittest

import browser
import generating
import programs

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None


def report_of(run) -> dict:
    page = (run / "report.html").read_text()
    return json.loads(page.split('<script type="application/json" id="run">')[1].split("</script>")[0])


def as_shown(value: float) -> float:
    return float(f"{value:.6g}")


class RunReport(programs.WithText):
    """`run` has 16 updates and, resumed, 8 more; `other` has 16, and nothing but what every run leaves."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.run_folder, cls.other = cls.root / "run", cls.root / "other"
        options = {"training.sample_interval": 8, "training.sample_tokens": 5, "training.sample_prompt": "the",
                   "report.tensorboard": "true"}
        programs.train(cls.run_folder, cls.text, training__max_steps=16, **options)
        cls.first_start = report_of(cls.run_folder)
        programs.train(cls.run_folder, cls.text, **options)
        programs.train(cls.other, cls.text, training__max_steps=16)
        cls.losses = programs.losses(cls.run_folder)
        cls.trained = {step: loss for step, (loss, _) in ((k, v) for k, v in cls.losses.items() if isinstance(k, int))}
        cls.validated = {key[1]: loss for key, loss in cls.losses.items() if isinstance(key, tuple)}

    def test_the_report_shows_the_metrics_of_both_starts(self):
        report = report_of(self.run_folder)
        curves = {name: dict(zip(curve["steps"], curve["values"])) for name, curve in report["curves"].items()}
        self.assertEqual(list(self.trained), list(range(1, 25)))
        self.assertEqual(list(self.validated), [8, 16, 24])
        self.assertEqual(curves["loss"], {step: as_shown(loss) for step, loss in self.trained.items()})
        self.assertEqual(curves["validation_loss"], {step: as_shown(loss) for step, loss in self.validated.items()})
        for name in ("learning_rate", "grad_norm", "tokens_per_second", "peak_memory_mb"):
            self.assertEqual(len(curves[name]), 24, name)
        self.assertEqual((report["step"], report["total_steps"], report["has_ended"]), (24, 24, True))
        self.assertEqual(report["configuration"], (self.run_folder / "effective_config.yaml").read_text())
        self.assertRegex(report["machine"], r"^.*, 1 thread, [0-9.]+ GB\nPrecision: float32.*\ngpt-train .*\nLibTorch")

    def test_samples_and_events_of_both_starts_are_there(self):
        report = report_of(self.run_folder)
        samples = {sample["step"]: sample["text"] + "\n" for sample in report["samples"]}
        written = {int(path.stem.removeprefix("step_")): path.read_text() for path in self.run_folder.glob("samples/*")}
        self.assertEqual(list(samples), [8, 16, 24])
        self.assertEqual(samples, written)
        events = [(event["step"], event["what"]) for event in report["events"]]
        # What was saved again and again is told once.
        self.assertEqual(events, [(16, "resumed with training.max_steps: 16 -> 24"), (24, f"saved {self.run_folder}/ckpt_best.pt"),
                                  (24, f"saved {self.run_folder}/ckpt.pt")])

    @unittest.skipUnless(browser.BROWSER, browser.MISSING)
    def test_a_browser_shows_the_losses(self):
        dom = browser.browse(self.run_folder / "report.html", self.root / "profile", "--dump-dom").stdout
        self.assertEqual(browser.text_of(dom, "status"), "Finished: step 24 of 24 (100.0%).")
        self.assertRegex(dom, r'id="failure" hidden=""')
        figures = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)", dom))
        in_page = float(f"{self.trained[24]:.6g}")  # six digits, whose fourth place may round the other way
        self.assertEqual(figures["Training loss"], f"{in_page:.4f}")
        self.assertEqual(figures["Validation loss"], f"{self.validated[24]:.4f}")
        curves = dom[dom.index('id="charts"'):dom.index('id="device"')]
        self.assertEqual(curves.count("<canvas"), 2 * 6)  # two to a chart: no share of the peak on a CPU

    def test_a_report_that_cannot_be_written_does_not_end_the_run(self):
        run = self.root / "no_report"
        (run / "report.html").mkdir(parents=True)
        done = programs.train(run, self.text, training__max_steps=16)
        warnings = [line for line in done.stderr.splitlines() if "report.html" in line]
        self.assertEqual(len(warnings), 1, warnings)
        self.assertRegex(warnings[0], r"^warning: .*/report.html: .*; training continues, and report.html is out of date$")
        self.assertEqual(programs.losses(run), programs.losses(self.other))

    @unittest.skipUnless(EventAccumulator, "no TensorBoard here: pip install tensorboard")
    def test_tensorboard_reads_both_starts(self):
        self.assertFalse((self.other / "tensorboard").exists())
        self.assertEqual(len(list((self.run_folder / "tensorboard").iterdir())), 2)
        events = EventAccumulator(str(self.run_folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        for tag, losses in {"loss/train": self.trained, "loss/validation": self.validated}.items():
            read = {scalar.step: scalar.value for scalar in events.Scalars(tag)}
            self.assertEqual(list(read), list(losses))
            for step, loss in losses.items():
                self.assertAlmostEqual(read[step], loss, delta=1e-6)
        self.assertEqual([sample.step for sample in events.Tensors("sample")], [8, 16, 24])

    def test_a_run_on_a_terminal_ends_with_its_curve(self):
        words = {**programs.TINY, "data.text": self.text, "output_dir": self.root / "terminal"}
        for locale, corner in (("C.UTF-8", "└┬─"), ("C", "++--")):
            with self.subTest(locale=locale):
                terminal = generating.Terminal(programs.command("gpt-train", "--restart", *programs.flags(words)),
                                               environment={"LC_ALL": locale})
                self.addCleanup(terminal.close)
                self.assertEqual(terminal.wait(), 0)
                rows = terminal.shown.decode().split("\r\n")
                losses = programs.losses(self.root / "terminal")
                legend = next(i for i, row in enumerate(rows) if re.search("   loss . training ", row))
                self.assertIn(f"training {losses[24][0]:.4f}   ", rows[legend])
                self.assertIn(f"validation {losses['val', 24]:.4f}", rows[legend])
                self.assertEqual(rows[legend + 10].strip()[:len(corner)], corner)
                self.assertLessEqual(max(map(len, rows[legend:legend + 12])), 80)
                self.assertRegex(rows[legend + 11], "^ +1 +13 +24 steps$")

    def test_lines_fit_the_terminal_and_the_log_file_has_them_whole(self):
        run = self.root / "lines"
        terminal = generating.Terminal(programs.command("gpt-train", *programs.flags({**programs.TINY, "data.text": self.text,
                                                                                     "output_dir": run})))
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.wait(), 0)
        for pattern, last in ((r"step +\d+/24 \| loss .*", "norm"), (r"step +\d+/24 \| val loss .*", "bits/byte")):
            with self.subTest(pattern):
                shown = re.findall(pattern, terminal.shown.decode().replace("\r", "\n"))
                self.assertGreater(len(shown), 0)
                self.assertLessEqual(max(map(len, shown)), 80)
                logged = re.findall(pattern, (run / "train.log").read_text())
                self.assertEqual(len(shown), len(logged))
                self.assertTrue(all(last in line for line in logged), logged)
                self.assertEqual([line.split(" | ")[:2] for line in shown], [line.split(" | ")[:2] for line in logged])

    def diagnose(self, *words, **options):
        return programs.run("gpt-diagnose", "--run", *words, **options)

    def test_runs_are_drawn_and_compared(self):
        shown = self.diagnose(self.run_folder, f"{self.other}/", check_code=0, env={"LC_ALL": "C"}).stdout
        self.assertTrue(shown.startswith("validation loss by step\n"), shown)
        self.assertIn(f"* {self.run_folder} {self.validated[24]:.4f}", shown)
        _, verdict, table, settings = shown.split("\n\n")
        self.assertIn("more than chance needs runs with other seeds", verdict.replace("\n", " "))
        head, *rows = [re.split(r"  +", row.strip()) for row in table.splitlines()]
        self.assertRegex(settings, r"^The runs differ in .*\n(.*\n)*training.max_steps +24 +16\n")
        self.assertEqual([row[0] for row in rows], [str(self.run_folder), str(self.other)])
        first, second = (dict(zip(head, row)) for row in rows)
        self.assertEqual((first["steps"], second["steps"]), ("24", "16"))
        self.assertEqual(first["val loss"], f"{self.validated[24]:.4f}")
        self.assertEqual(first["best"], f"{min(self.validated.values()):.4f}")
        self.assertEqual(first["parameters"], second["parameters"])
        self.assertNotIn("-", first.values())

    def test_a_narrow_terminal_gets_the_columns_that_matter_most(self):
        terminal = generating.Terminal(programs.command("gpt-diagnose", "--run", self.run_folder, self.other))
        self.addCleanup(terminal.close)
        self.assertEqual(terminal.wait(), 0)
        shown = terminal.shown.decode().replace("\r\n", "\n")
        self.assertLessEqual(max(map(len, shown.splitlines())), 80, shown)
        head = re.split(r"  +", next(line for line in shown.splitlines() if line.startswith("run  ")).strip())
        self.assertEqual([heading for heading in head if heading in ("run", "steps", "tokens", "loss", "best")],
                         ["run", "steps", "loss", "best"])

    def test_one_run_is_drawn_with_both_its_losses(self):
        shown = self.diagnose(self.run_folder, check_code=0, env={"LC_ALL": "C.UTF-8"}).stdout
        self.assertIn(f"⣿ training {self.trained[24]:.4f}   ● validation {self.validated[24]:.4f}", shown)

    def test_a_folder_may_have_any_name(self):
        link = self.root / os.fsdecode(b"a\x1b[2J\x9b \xe2\x80\xae \xc2\x9d")
        link.symlink_to(self.run_folder)
        spelled = f"{self.root}/a\\x1b[2J\\x9b \\u202e \\x9d"
        self.assertIn(spelled, self.diagnose(link, self.other, check_code=0).stdout)
        self.assertTrue(self.diagnose(link, "--json", check_code=0).stdout.isascii())
        self.assertIn(spelled + "/none: there is no such folder", self.diagnose(link / "none", check_code=2).stderr)

    def test_json_has_the_whole_numbers(self):
        run, other = json.loads(self.diagnose(self.run_folder, self.other, "--json", check_code=0).stdout)["runs"]
        records = [record for record in programs.metrics(self.run_folder) if "loss" in record]
        self.assertEqual((run["steps"], run["loss"], run["val_loss"]), (24, self.trained[24], self.validated[24]))
        self.assertAlmostEqual(run["seconds"], sum(record["step_ms"] for record in records) / 1e3)
        self.assertAlmostEqual(run["tokens"], 24 * 2 * 4 * 16, delta=2 * 4 * 16)  # less in the batch that ends an epoch
        self.assertAlmostEqual(run["tokens_per_second"], run["tokens"] / run["seconds"])
        bits = {record["step"]: record["val_bits_per_byte"] for record in programs.metrics(self.run_folder) if "val_loss" in record}
        self.assertEqual(run["best_val_bits_per_byte"], bits[run["best_step"]])
        self.assertEqual(run["parameters"], report_of(self.run_folder)["parameters"])
        self.assertEqual(other["steps"], 16)

    def test_what_is_no_run_is_one_line(self):
        empty = self.root / "empty"
        empty.mkdir()
        for folder, what in ((self.root / "nothing", "there is no such folder"),
                             (empty, "it holds no metrics.jsonl, and no folders with one"), (self.text, "it is not a folder")):
            done = self.diagnose(self.run_folder, folder, check_code=2)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr, f"error: --run: {folder}: {what}; name the output_dir of a run, such as models/NAME\n")
        self.assertIn("needs a value", self.diagnose(check_code=2).stderr)

    def test_a_run_that_has_logged_nothing_has_a_row(self):
        run = self.root / "begun"
        run.mkdir()
        (run / "metrics.jsonl").write_text('{"step":1,"lo')
        self.assertRegex(self.diagnose(run, check_code=0).stdout, rf"^run .*\n{run}( +-){{10}}\n$")


class LayerNorms(programs.WithText):
    """training.log_norms: what a logged step has of each layer, and nothing else is changed."""

    KINDS = ("gradient", "weight", "update")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, options in {"without": {}, "with": {"training.log_norms": "true", "report.tensorboard": "true"},
                              "zero": {"training.log_norms": "true", "distributed.processes": 2, "distributed.zero": 2}}.items():
            programs.train(cls.root / name, cls.text, training__log_interval=6, distributed__lanes=2, **options)
        cls.lines = programs.metrics(cls.root / "with")
        cls.logged = {line["step"]: line for line in cls.lines if "step_ms" in line}

    def test_logged_steps_have_those_of_each_layer(self):
        self.assertEqual([line["step"] for line in self.lines if "norms" in line], [1, 2, 5, 6, 12, 18, 24])
        for line in self.logged.values():
            self.assertEqual({kind: len(norms) for kind, norms in line["norms"].items()}, dict.fromkeys(self.KINDS, 4))
            total = sum(norm**2 for norm in line["norms"]["gradient"])**0.5
            self.assertAlmostEqual(total / line["grad_norm"], 1, delta=1e-5)  # six digits of each
            for kind in ("weight", "update"):
                self.assertGreater(min(line["norms"][kind]), 0)

    def test_they_change_nothing(self):
        self.assertEqual(programs.losses(self.root / "with"), programs.losses(self.root / "without"))
        self.assertFalse([line for line in programs.metrics(self.root / "without") if "norms" in line])

    def test_processes_that_divide_the_run_have_the_same(self):
        divided = {line["step"]: line["norms"] for line in programs.metrics(self.root / "zero") if "norms" in line}
        self.assertEqual(list(divided), list(self.logged))
        for step, norms in divided.items():
            for kind in self.KINDS:
                for found, expected in zip(norms[kind], self.logged[step]["norms"][kind], strict=True):
                    self.assertAlmostEqual(found / expected, 1, delta=1e-5)

    def test_the_report_draws_them(self):
        report = report_of(self.root / "with")
        self.assertEqual(report["layers"], ["embeddings", "h.0", "h.1", "final"])
        last = {kind: norms[1] for kind, norms in self.logged[24]["norms"].items()}
        self.assertEqual(report["curves"]["layer_gradient h.0"]["steps"], list(self.logged))
        self.assertEqual(report["curves"]["layer_gradient h.0"]["values"][-1], last["gradient"])
        self.assertAlmostEqual(report["curves"]["layer_change h.0"]["values"][-1] / (last["update"] / last["weight"]), 1, delta=1e-5)
        self.assertEqual(report_of(self.root / "without")["layers"], [])

    @unittest.skipUnless(browser.BROWSER, browser.MISSING)
    def test_a_browser_shows_them(self):
        for name, charts in (("with", 3), ("without", 0)):
            dom = browser.browse(self.root / name / "report.html", self.root / "profile", "--dump-dom").stdout
            self.assertRegex(dom, r'id="failure" hidden=""')
            self.assertEqual(dom[dom.index('id="layers"'):dom.index('id="samples"')].count("<canvas"), 2 * charts)

    @unittest.skipUnless(EventAccumulator, "no TensorBoard here: pip install tensorboard")
    def test_tensorboard_has_all_layers(self):
        events = EventAccumulator(str(self.root / "with/tensorboard"), size_guidance={"scalars": 0})
        events.Reload()
        for kind in self.KINDS:
            for place, name in enumerate(("embeddings", "h.0", "h.1", "final")):
                read = {scalar.step: scalar.value for scalar in events.Scalars(f"{kind}_norm/{name}")}
                self.assertEqual(list(read), list(self.logged))
                for step, value in read.items():
                    self.assertAlmostEqual(value / self.logged[step]["norms"][kind][place], 1, delta=1e-5)


if __name__ == "__main__":
    unittest.main()
