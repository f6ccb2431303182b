"""gpt-bench measures what each optimization is worth, and leaves table, JSON and chart behind."""

import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

import programs


def living(group):
    """The processes of the group that have not ended."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = path.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue  # it has just gone
        if int(of_group) == group and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def end_group(group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def wait_until(is_so, otherwise, seconds=programs.HANGS):
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise AssertionError(otherwise)
        time.sleep(0.05)


def on_a_terminal(words):
    """What the command writes to standard output where that is a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.DEVNULL)
    os.close(its)
    text = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while block := os.read(ours, 4096):
            text += block
    os.close(ours)
    if process.wait() != 0:
        raise AssertionError(f"exit {process.returncode}\n{text.decode()}")
    return text.decode().replace("\r\n", "\n")


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        # So slow that no text is learned by heart, however many updates are measured: rounding would show in losses near zero.
        options = {**programs.TINY, "model.dropout": 0, "training.max_steps": 1000, "training.learning_rate": 1e-4}
        self.flags = ["--data", programs.write_text(self.root), *programs.flags(options)]
        self.options = ["--results", self.root / "results", *self.flags]

    def files(self, ending):
        return sorted((self.root / "results").glob(f"*{ending}"))

    @programs.long
    def test_a_combination_is_measured_whole_and_written_down(self):
        done = programs.run("gpt-bench", "combo", "adamw+compile", "--minutes", 0.1, *self.options, check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        self.assertTrue(report["complete"])
        self.assertEqual([row["name"] for row in report["rows"]], ["start", "adamw", "compile"])
        self.assertTrue(all(row["kept"] for row in report["rows"]), "something was left out")
        self.assertEqual([row["name"] for row in report["switched"]], ["start", "without adamw", "without compile"])
        self.assertIn("The start beside the full set, `adamw+compile`, and that without", done.stdout)
        self.assertGreater(report["machine"]["memory_bytes"], 0)
        self.assertIn(f"(commit {report['commit']}), LibTorch", done.stdout)
        self.assertEqual([row["name"] for row in report["variants"]], ["32", "64", "96", "128", "160", "192", "256", "cpu"])
        losses = [row["measurement"]["loss"] for row in report["rows"]]
        self.assertNotIn("differs", json.dumps(report["rows"]))
        for loss, row in zip(losses, report["rows"]):
            self.assertAlmostEqual(loss, losses[0], delta=0.01 * losses[0])
            self.assertEqual(row["loss_difference"], loss - losses[0])
        for row in report["rows"]:
            self.assertGreater(row["least_ms"], 0)
            self.assertGreater(row["measurement"]["step_ms"], 0)
            self.assertGreater(row["measurement"]["peak_bytes"], 10_000_000)
        self.assertEqual(self.files(".md")[0].read_text(), done.stdout)
        picture = self.files(".svg")[0].read_text()
        xml.etree.ElementTree.fromstring(picture)
        for part in (report["date"], report["device"], ", 1 thread<", ">2 layers, 2 heads, width 32, 4 x 16 tokens<", "prefers-color-scheme: dark"):
            self.assertIn(part, picture)
        self.assertEqual(len(list((self.root / "results").iterdir())), 3, "files were left behind")

    def test_one_measurement_is_an_object(self):
        done = programs.run("gpt-bench", "measure", "--updates", 3, "--warm-up", 1, *self.flags, check_code=0)
        result = json.loads(done.stdout)
        self.assertEqual(set(result), {"step_ms", "cpu_ms", "tokens_per_second", "peak_bytes", "tensor_bytes", "threads", "loss", "start_seconds", "work"})
        self.assertGreater(result["tokens_per_second"], 0)

    def test_operators_are_measured_one_by_one(self):
        done = programs.run("gpt-bench", "ops", "--minutes", 0.1, *self.options, check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        self.assertTrue(report["complete"])
        names = [row["name"] for row in report["operators"]]
        self.assertEqual(len(set(names)), 23)
        for name in ("attention, with backward", "head and cross entropy", "AdamW"):
            self.assertIn(f"| {name} ", done.stdout)
        for row in report["operators"]:
            self.assertGreater(row["ms"], 0)
            self.assertGreater(row["least_ms"], 0)
            self.assertGreater(row["libtorch_ms"], 0)
        self.assertEqual(self.files(".md")[0].read_text(), done.stdout)
        xml.etree.ElementTree.parse(self.files(".svg")[0])

    def test_scaling_is_simulated_for_a_card_that_is_not_here(self):
        words = ("--preset", "gpt2_small", "--vocab-size", 50257, "--batch-size", 16, "--results", self.root / "results")
        done = programs.run("gpt-bench", "scaling", "--gpu", "H100 SXM", *words, check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        self.assertEqual([row["devices"] for row in report["rows"]], [1, 8, 64, 512, 4096])
        self.assertEqual([row["tokens"] for row in report["rows"]], [16 * 1024 * count for count in (1, 8, 64, 512, 4096)])
        self.assertIn("\n\nSimulated, not measured: ", done.stdout)
        self.assertIn("\nH100 SXM; 12 layers", done.stdout)
        self.assertEqual(self.files(".md")[0].read_text(), done.stdout)
        done = programs.run("gpt-bench", "scaling", "--gpu", "H100 SXM", "--devices", "8,x", *words, check_code=2)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    @programs.long
    def test_scaling_follows_from_a_step_that_is_tried_here(self):
        words = ("--devices", "1,2", "--link", 0.01, "--pipeline-parallel", 1, *self.flags)
        programs.run("gpt-bench", "scaling", *words, "--results", self.root / "results", check_code=0)
        one, two = json.loads(self.files(".json")[0].read_text())["rows"]
        self.assertGreater(one["computing_seconds"], 0)
        self.assertEqual(one["sending_seconds"], 0)
        # Each of two sends half of the gradients and half of the sum, at nineteen twentieths of 10 Mbit/s.
        self.assertGreater(two["step_seconds"], 0.95 * 4 * 26_000 / (0.95 * 0.01e9 / 8))
        self.assertEqual((two["data_parallel"], two["tensor_parallel"]), (2, 1))
        programs.run("gpt-bench", "scaling", *words, "--seconds-per-step", 5, "--results", self.root / "given", check_code=0)
        report = json.loads(next((self.root / "given").glob("*.json")).read_text())
        self.assertAlmostEqual(report["rows"][0]["computing_seconds"], 5)

    def test_the_modes_are_compared(self):
        done = programs.run("gpt-bench", "modes", "--epochs", 2, "--iterations", 3, *self.options, check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        self.assertTrue(report["complete"])
        self.assertEqual((report["epochs"], report["updates"]), (2, 3))
        self.assertEqual([row["name"] for row in report["rows"]], ["eager", "default", "reduce-overhead", "max-autotune"])
        eager, default, *others = report["rows"]
        self.assertAlmostEqual(default["measurement"]["loss"], eager["measurement"]["loss"], delta=0.04)
        self.assertEqual({row["verdict"] for row in others}, {"on a CPU every mode is default"})
        self.assertEqual(self.files(".md")[0].read_text(), done.stdout)

    @programs.long
    def test_architectures_are_compared(self):
        options = [*self.options, "--data.validation_fraction", 0.2]
        done = programs.run("gpt-bench", "architecture", "--minutes", 0.1, *options, check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        self.assertTrue(report["complete"])
        base, seed, *variants = report["variants"]
        self.assertEqual((base["name"], seed["name"]), ("as configured", "another seed"))
        self.assertGreaterEqual(len(variants), 5)
        for variant in report["variants"]:
            points = variant["learning"]["validation_loss"]
            self.assertEqual([points[0][0], points[-1][0]], [0, report["updates"]])
            self.assertLess(points[-1][1], points[0][1], variant["name"])
        self.assertNotEqual(base["learning"]["validation_loss"], seed["learning"]["validation_loss"])
        self.assertEqual(self.files(".md")[0].read_text(), done.stdout)
        xml.etree.ElementTree.parse(self.files(".svg")[0])

    @programs.long
    def test_experiments_go_on_where_they_were(self):
        options = [*self.options, "--data.validation_fraction", 0.2, "--minutes", 0.1]
        first = programs.run("gpt-bench", "experiments", *options, check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        self.assertTrue(report["complete"])
        plain = report["experiments"][0]
        self.assertEqual((plain["name"], len(plain["runs"])), ("as configured", 3))
        self.assertEqual(len({run["validation_loss"][-1][1] for run in plain["runs"]}), 3, "seeds differ")
        for run in plain["runs"]:
            self.assertLess(run["validation_loss"][-1][1], run["validation_loss"][0][1])
        names = {row["name"] for row in report["experiments"]} | set(report["left_out"])
        self.assertLessEqual({"Muon", "wsd learning rate", "growing sequences"}, names)
        self.assertEqual(len(self.files(".jsonl")), 1)
        for path in self.files(".json"):
            path.unlink()
        second = programs.run("gpt-bench", "experiments", *options, check_code=0)
        self.assertRegex(second.stderr, r"Going on with .*/experiments-[0-9a-f]{12}\.jsonl")
        again = json.loads(self.files(".json")[0].read_text())
        self.assertEqual(again["experiments"][0], plain)

    @programs.long
    def test_savers_of_memory_are_compared(self):
        large = {**programs.TINY, "model.dropout": 0, "model.block_size": 64, "training.batch_size": 64}
        done = programs.run("gpt-bench", "memory", "--minutes", 0.1, "--results", self.root / "results", "--data",
                            self.root / "text.txt", *programs.flags(large), check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        self.assertTrue(report["complete"])
        rows = {row["name"]: row for row in report["rows"]}
        memory = {name: row["measurement"]["tensor_bytes"] for name, row in rows.items() if row["measurement"]}
        self.assertLess(memory["block"], memory["baseline"])
        self.assertLess(memory["compile+block"], memory["compile"])
        for name in ("block", "selective", "compile+norm", "compile+block", "accumulation"):
            self.assertTrue(rows[name]["verdict"].startswith("the same loss within 1 %"), (name, rows[name]["verdict"]))
        self.assertEqual(self.files(".md")[0].read_text(), done.stdout)

    def test_a_step_is_taken_apart(self):
        done = programs.run("gpt-bench", "profile", "--minutes", 0.1, *self.options, check_code=0)
        report = json.loads(self.files(".json")[0].read_text())
        parts = {part["name"]: part for part in report["parts"]}
        for name in ("data", "embedding", "residual sum and norm", "products", "attention", "activation", "head and loss",
                     "optimizer", "between the operators"):
            self.assertIn(f"| {name} ", done.stdout)
            self.assertGreater(parts[name]["ms"], 0, name)
        for name, part in parts.items():
            self.assertEqual(part["least_ms"] > 0, name != "between the operators", name)
        self.assertAlmostEqual(sum(part["least_ms"] for part in report["parts"]), report["least_ms"])
        self.assertTrue(report["advice"])
        self.assertIn("What to change:", done.stdout)

    @programs.long
    def test_ctrl_c_keeps_what_is_done(self):
        words = programs.command("gpt-bench", "ladder", "--minutes", 5, *self.options)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        for line in process.stderr:
            if "measuring" in line and "flash" in line:
                break
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        table, _ = process.communicate(timeout=programs.HANGS)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        self.assertIn("Stopped before it was complete.", table)
        self.assertIn("| start ", table)
        self.assertFalse(json.loads(self.files(".json")[0].read_text())["complete"])

    def begin_to_measure(self, *words):
        """Until a measurement runs that would take hours; the leader of a group of processes of its own."""
        words = programs.command("gpt-bench", "modes", "--iterations", 1000000, *words, *self.options)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(end_group, process.pid)
        for stream in (process.stdout, process.stderr):
            self.addCleanup(stream.close)
        wait_until(lambda: len(living(process.pid)) == 2, "the measurement has no process of its own")
        return process

    def test_a_signal_to_the_program_alone_reaches_its_measurement(self):
        for signal_sent in (signal.SIGINT, signal.SIGTERM):
            process = self.begin_to_measure()
            process.send_signal(signal_sent)
            process.communicate(timeout=programs.HANGS)
            self.assertEqual(process.returncode, 128 + signal_sent)
            self.assertEqual(living(process.pid), [])

    def test_a_measurement_does_not_outlive_the_program(self):
        process = self.begin_to_measure()
        process.kill()
        process.wait(timeout=programs.HANGS)
        wait_until(lambda: living(process.pid) == [], "the measurement goes on")

    @programs.long
    def test_threads_are_those_that_computed(self):
        one = {"OMP_NUM_THREADS": "1"}
        options = [*self.options]
        options[options.index("--threads") + 1] = "0"
        for verb, *words in (["modes", "--epochs", 1, "--iterations", 1], ["ops", "--minutes", 0.1]):
            done = programs.run("gpt-bench", verb, *words, *options, env=one, check_code=0)
            self.assertEqual(json.loads(self.files(".json")[-1].read_text())["threads"], 1, verb)
            self.assertIn(", 1 thread; 2 layers", done.stdout)

    def test_a_terminal_shows_plain_text(self):
        words = programs.command("gpt-bench", "modes", "--epochs", 1, "--iterations", 1, *self.options)
        shown = on_a_terminal(words)
        title, rest = shown.split("\n", 1)
        self.assertEqual(title, "gpt-bench modes")
        self.assertRegex(rest, r"\nmode  .*  ms/step  .*\n---+  -.*\neager  .*\n")
        self.assertRegex(" ".join(rest.split()), " verdict (cannot tell: only 1 pair|the loss differs)")
        self.assertLessEqual(max(map(len, shown.splitlines())), 80)
        for mark in ("`", "|", "# ", "* "):
            self.assertNotIn(mark, shown)
        markdown = self.files(".md")[0].read_text()
        self.assertIn("| eager ", markdown)
        self.assertTrue(markdown.startswith("# gpt-bench modes\n"))

    def test_every_command_explains_itself(self):
        usage = programs.run("gpt-bench", "--help", check_code=0).stdout
        self.assertLessEqual(max(map(len, usage.splitlines())), 80)
        verbs = re.findall(r"gpt-bench (\w+) .*\[--config FILE\]", usage)
        self.assertEqual(len(verbs), 10)
        for verb in verbs:
            done = programs.run("gpt-bench", verb, "--help", check_code=0)
            self.assertTrue(done.stdout.startswith("Simulates " if verb == "scaling" else "Measures "), done.stdout)
            self.assertIn(f"\nUsage: gpt-bench {verb} ", done.stdout)
        combo = programs.run("gpt-bench", "combo", "-h", check_code=0).stdout
        self.assertIn("Usage: gpt-bench combo NAME+NAME... [--config FILE]", combo)
        self.assertRegex(combo, r"\n  end_to_end +\w")
        self.assertIn("LibTorch", programs.run("gpt-bench", "--version", check_code=0).stdout)

    def test_mistakes_are_named(self):
        for words, message in (
                (["climb"], "gpt-bench: unknown command 'climb'; use one of ladder, combo, modes, architecture, experiments, memory, ops, profile, scaling, measure"),
                (["combo"], "gpt-bench combo: name the optimizations, such as compile+adamw"),
                (["combo", "adam"], "gpt-bench combo: there is no optimization 'adam'; did you mean adamw? There are tf32, bfloat16, float16, flash, "
                                    "padding, adamw, compile, end_to_end, graph, autotune, workers_2, workers, pinned, resident, "
                                    "activation, norm, selective, block, 8-bit, offload, swap, no_master, bfloat16_gradients, accumulation"),
                (["combo", "graph", "--device", "cpu"], "gpt-bench combo: graph cannot be measured: needs a GPU"),
                (["ladder", "--data", "nowhere.txt"], None)):
            done = programs.run("gpt-bench", *words, cwd=self.root)
            self.assertIn(done.returncode, (2, 3), words)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("error: "), 1, done.stderr)
            if message:
                self.assertEqual(done.stderr, f"error: {message}\n")
        self.assertIn("gpt-bench ladder", programs.run("gpt-bench", "--help", check_code=0).stdout)


if __name__ == "__main__":
    unittest.main()
