"""From files to training: prepared bins, text of every kind, stages, and what is refused before the first step."""

import fcntl
import gzip
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import time
import unittest

import programs
from test_train_resume import SIGNALS, load, same


def folders(path):
    return [entry for entry in path.iterdir() if entry.is_dir()]


class Data(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.text = programs.write_text(self.root)

    def flags(self, name, **options):
        """TINY without its text."""
        return programs.flags({**programs.TINY, "output_dir": self.root / name,
                               **{key.replace("__", "."): value for key, value in options.items()}})

    def train(self, name, check_code=0, **options):
        return programs.run("gpt-train", *self.flags(name, **options), check_code=check_code)

    def prepare(self, name, *words):
        programs.run("gpt-prepare", "--input", self.text, "--output", self.root / name, *words, check_code=0)
        return self.root / name

    def test_a_prepared_bin_trains_as_its_text_does(self):
        prepared = self.prepare("prepared", "--tokenizer", "bpe:300")
        self.train("from_bin", data__bin=prepared / "tokens_bpe.bin")
        self.train("from_text", data__text=self.text, data__tokenizer="bpe:300")
        self.assertEqual(programs.losses(self.root / "from_bin"), programs.losses(self.root / "from_text"))
        validation = [record for record in programs.metrics(self.root / "from_bin") if "val_loss" in record]
        for record in validation:
            self.assertAlmostEqual(record["val_perplexity"], 2.718281828459045 ** record["val_loss"], places=6)
            self.assertGreater(record["val_bits_per_byte"], 0)
        sample = programs.run("gpt-generate", "--checkpoint", self.root / "from_bin", "--device", "cpu", "-n", 20, check_code=0)
        self.assertTrue(sample.stdout)

    def test_bins_of_nanogpt_and_llmc(self):
        losses = {}
        for form in ("nanogpt", "llmc"):
            folder = self.prepare(form, "--tokenizer", "bpe:300", "--format", form)
            run = f"run_{form}"
            out = self.train(run, data__bin=folder / "train.bin", data__validation_bin=folder / "val.bin",
                             data__tokenizer=folder / "bpe_tokenizer.json")
            losses[form] = programs.losses(self.root / run)
            self.assertIn("bits/byte", out.stderr)
        self.assertEqual(losses["nanogpt"], losses["llmc"])

    def test_runs_that_start_together_prepare_their_text_once(self):
        cache = self.root / "cache"
        options = {"data__text": self.text, "data__cache_dir": cache, "training__max_steps": 1}
        self.assertIn("Preparing", self.train("first", **options).stderr)
        (entry,) = folders(cache)
        entry.rename(self.root / "entry")

        def start_and_wait():
            process = subprocess.Popen(programs.command("gpt-train", *self.flags("second", **options)), stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertEqual(process.stderr.readline(), f"Waiting for process {os.getpid()}, which prepares {self.text}\n")
            return process

        with open(f"{entry}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            print(os.getpid(), end="", file=lock, flush=True)
            for how, code in SIGNALS.items():
                stopped = start_and_wait()
                stopped.send_signal(how)
                _, rest = stopped.communicate(timeout=programs.HANGS)
                self.assertEqual((stopped.returncode, rest), (code, f"error: interrupted while waiting for process {os.getpid()}\n"))
            second = start_and_wait()
            (self.root / "entry").rename(entry)
        _, rest = second.communicate(timeout=programs.HANGS)
        self.assertEqual(second.returncode, 0, rest)
        self.assertNotIn("Preparing", rest)
        self.assertEqual(folders(cache), [entry])
        self.assertFalse(list(cache.glob("*.lock")))

    def test_files_that_were_read_and_passed_over_are_counted(self):
        texts = self.root / "texts"
        texts.mkdir()
        self.text.rename(texts / "a.txt")
        (texts / "b.txt").write_bytes(b"\xef\xbb\xbfthe quick\r\nbrown fox\r\n" * 9)
        (texts / "c.txt").write_bytes(b"caf\xe9")
        (texts / "d.txt.gz").write_bytes(gzip.compress(os.urandom(9999))[:5000])
        (texts / "e.txt").write_text("UTF-16", encoding="utf-16")
        options = {"data__text": texts, "data__cache_dir": self.root / "cache", "training__max_steps": 1}
        found = f"{texts}: 2 files read, 3 passed over; 1 file had Windows line ends (CRLF), which became LF; " \
                "1 file began with a UTF-8 byte-order mark, which was dropped\n"
        first = self.train("first", **options).stderr
        self.assertIn(found, first)
        warning = next(line for line in first.splitlines() if "passed over: " in line)
        for reason in ("c.txt: byte 3: 0xE9 is not valid UTF-8", "d.txt.gz: the gzip data are cut off", "e.txt: it looks like UTF-16"):
            self.assertIn(reason, warning)
        second = self.train("second", **options).stderr
        self.assertIn(found, second)
        self.assertNotIn("Preparing", second)
        alone = self.train("alone", **{**options, "data__text": texts / "a.txt"}).stderr
        self.assertNotIn("files read", alone)

    def test_reading_before_the_first_step_obeys_signals(self):
        """A text to hash and ids to check, for minutes if nobody listened: holes that take no space on the disk."""
        large = self.root / "large"  # which says neither text nor token ids
        with open(large, "wb") as file:
            file.truncate(1 << 37)
        for name, options in (("text", {"data.text": large}), ("bin", {"data.bin": large, "model.vocab_size": 9})):
            for how, code in SIGNALS.items():
                options = {**programs.TINY, **options, "output_dir": self.root / name, "data.cache_dir": self.root / "cache"}
                process = subprocess.Popen(programs.command("gpt-train", *programs.flags(options)), stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.kill)
                while str(large) not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
                    self.assertIsNone(process.poll())
                    time.sleep(0.01)
                process.send_signal(how)
                _, error = process.communicate(timeout=programs.HANGS)
                what = "reading" if name == "text" else "checking"
                *_, last = error.splitlines()  # before it, a busy machine may say how far it is
                self.assertEqual((process.returncode, last), (code, f"error: interrupted while {what} {large}"))

    def test_the_cache_is_listed_limited_and_emptied(self):
        cache = self.root / "cache"
        texts = [self.root / name for name in ("one.txt", "two.txt")]
        for i, path in enumerate(texts):
            path.write_text(f"text {i}\n" * 50_000)
        options = {"data__cache_dir": cache, "data__cache_limit": 0.001, "training__max_steps": 1}
        self.train("one", data__text=texts[0], **options)
        (first,) = folders(cache)
        out = self.train("two", data__text=texts[1], **options).stderr
        self.assertRegex(out, rf"Removed 1 prepared text \(\d+ kB\) from {cache}, used longest ago: data\.cache_limit is 0\.001 GB\n")
        (second,) = folders(cache)
        self.assertNotEqual(first, second)
        words = ("--cache", "--cache-dir", cache)
        listed = programs.run("gpt-diagnose", *words, check_code=0)
        self.assertRegex(listed.stdout, rf"^{cache}: 1 prepared text, \d+ kB \(data\.cache_limit: 20 GB\)\n +\d+ kB  last used "
                                        rf"\d+-\d+-\d+ \d+:\d+  {texts[1]}  in {second.name}\n$")
        (entry,) = json.loads(programs.run("gpt-diagnose", "--json", *words, check_code=0).stdout)["cache"]
        self.assertEqual((entry["path"], entry["text"]), (str(second), str(texts[1])))
        cleared = programs.run("gpt-diagnose", "--clear-cache", *words, check_code=0)
        self.assertRegex(cleared.stderr, rf"^{cache}: removed 1 prepared text \(\d+ kB\)\n$")
        self.assertEqual(cleared.stdout, f"{cache}: 0 prepared texts, 0 bytes (data.cache_limit: 20 GB)\n")
        self.assertEqual(list(cache.iterdir()), [])

    def test_without_a_tokenizer_there_are_no_bits_per_byte(self):
        bin_file = self.root / "raw.bin"
        bin_file.write_bytes(struct.pack("<4000H", *(i * i % 97 for i in range(4000))))
        out = self.train("raw", data__bin=bin_file, model__vocab_size=97)
        self.assertEqual(out.stderr.count("no bits per byte"), 1)
        self.assertFalse([r for r in programs.metrics(self.root / "raw") if "val_bits_per_byte" in r])

    def test_what_is_wrong_with_the_data_is_one_line_before_the_first_step(self):
        bin_file = self.root / "bad.bin"
        bin_file.write_bytes(struct.pack("<4000H", *([5] * 3000 + [97] + [5] * 999)))
        refused = self.train("bad", check_code=3, data__bin=bin_file, model__vocab_size=97)
        self.assertIn("bad.bin: token 3000 has id 97, outside the vocabulary of 97", refused.stderr)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1, refused.stderr)
        checks = programs.run("gpt-diagnose", "--json", "--bin", bin_file, "--vocab-size", 97, "--device", "cpu", check_code=1)
        dataset = next(c for c in json.loads(checks.stdout)["checks"] if c["name"] == "dataset")
        self.assertIn("token 3000 has id 97", dataset["detail"])

    def stages(self):
        (self.root / "hard.txt").write_text("".join(f"{i * 7919 % 1000} dogs? lazy: {i % 31}, quick.\n" for i in range(150)))
        return {"data.text": self.text,
                "data.stages": f"[{{from: 0, block_size: 8}}, {{from: 7, mix: {{main: 1, {self.root}/hard.txt: 3}}}}, "
                               f"{{from: 15, block_size: 12, mix: {{{self.root}/hard.txt: 1}}}}]"}

    def test_stages_resume_bit_for_bit(self):
        (self.root / "hard.txt").write_text("")  # its characters must be the main text's
        self.text.write_text(self.text.read_text() + "?," * 40)
        options = {key.replace(".", "__"): value for key, value in self.stages().items()}
        out = self.train("whole", **options)
        self.assertIn("Stage from step 7: 4 sequences of 16 tokens", out.stderr)
        self.assertIn("Stage from step 0: 8 sequences of 8 tokens", out.stderr)
        self.assertNotIn("mean loss", out.stderr)  # an epoch has none when no text was seen once from end to end
        whole = load(self.root / "whole/ckpt.pt")
        self.assertIn("hard.txt", whole["config"]["data"]["stages"])
        self.train("kept", training__checkpoint_interval=1, training__keep_last=100, **options)
        for stop in (3, 7, 8, 14, 15, 20):
            with self.subTest(stop=stop):
                run = self.root / f"from{stop}"
                run.mkdir()
                (run / "ckpt.pt").write_bytes((self.root / f"kept/ckpt_step_{stop:08}.pt").read_bytes())
                (run / "metrics.jsonl").write_text("".join(
                    json.dumps(record) + "\n" for record in programs.metrics(self.root / "kept") if record["step"] <= stop))
                self.train(run.name, **options)
                resumed = load(run / "ckpt.pt")
                for key in ("model", "optimizer", "rng", "data", "step"):
                    self.assertTrue(same(whole[key], resumed[key]), key)
                self.assertEqual(programs.losses(self.root / "whole"), programs.losses(run))

    def test_stages_cannot_change_under_a_run(self):
        self.text.write_text(self.text.read_text() + "?," * 40)
        options = {key.replace(".", "__"): value for key, value in self.stages().items()}
        self.train("run", training__max_steps=20, **options)
        options["data__stages"] = options["data__stages"].replace("from: 7", "from: 8")
        refused = self.train("run", check_code=4, **options)
        self.assertIn("data.stages", refused.stderr)

    def test_easier_samples_first(self):
        self.train("simple", data__text=self.text, data__order="simpler_first")
        self.train("random", data__text=self.text)
        self.assertNotEqual(programs.losses(self.root / "simple"), programs.losses(self.root / "random"))
        refused = self.train("short", check_code=2, data__text=self.text, data__order="shorter_first")
        self.assertIn("data.order", refused.stderr)


if __name__ == "__main__":
    unittest.main()
