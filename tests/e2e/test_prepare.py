"""gpt-prepare as a user meets it: text of every kind in, bins out, and nothing half-made whatever happens."""

import array
import gzip
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import programs
from programs import TINY, command, flags, run


def ids(path, width="H", header=0):
    values = array.array(width)
    values.frombytes(pathlib.Path(path).read_bytes()[header:])
    return list(values)


def record(kind, text):
    return (f"WARC/1.0\r\nWARC-Type: {kind}\r\nContent-Length: {len(text.encode())}\r\n\r\n{text}\r\n\r\n").encode()


def peak_memory(words):
    """In bytes, of a program that has to succeed. The kernel counts that of the process it is forked from as its own, so
    that an interpreter with nothing loaded starts it."""
    measure = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL); "
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run([sys.executable, "-c", measure, *words], stdout=subprocess.PIPE, check=True, timeout=programs.HANGS)
    return int(done.stdout) * 1024


class Prepare(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpt-prepare-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out"

    def file(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def prepare(self, *inputs, tokenizer="byte", code=0, **options):
        words = [word for path in inputs for word in ("--input", path)]
        return run("gpt-prepare", *words, "--output", self.out, "--tokenizer", tokenizer, *options.pop("words", ()),
                   check_code=code, **options)

    def metadata(self):
        return json.loads((self.out / "tokens_bpe_metadata.json").read_text())

    def assert_refused(self, code, message, *inputs, **options):
        done = self.prepare(*inputs, code=code, **options)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, "^error: .*" + message)

    def test_every_kind_of_input(self):
        texts = ["plain", "one", "two", "page \u00e9", "packed"]
        self.file("in/a.txt", texts[0])
        self.file("in/b.jsonl.gz", gzip.compress("".join(json.dumps({"text": t}) + "\n" for t in texts[1:3]).encode()))
        self.file("in/c.warc.wet.gz", gzip.compress(record("warcinfo", "x")) + gzip.compress(record("conversion", texts[3])))
        self.file("in/d.txt.gz", gzip.compress(texts[4].encode()))
        self.file("in/photo.jpg", b"\xff\xd8\0\0")
        done = self.prepare(self.folder / "in", words=("--validation-fraction", 0))
        self.assertEqual(bytes(ids(self.out / "tokens_bpe.bin")).decode(), "".join(texts))
        metadata = self.metadata()
        self.assertEqual(metadata["vocab_size"], 256)
        self.assertEqual(metadata["dtype"], "uint16")
        self.assertEqual(metadata["train"], {"tokens": 24, "documents": 5, "bytes": 24})
        self.assertEqual(metadata["bytes_per_token"], 1)
        self.assertEqual([pathlib.Path(source["path"]).name for source in metadata["sources"]],
                         ["a.txt", "b.jsonl.gz", "c.warc.wet.gz", "d.txt.gz"])
        self.assertEqual(metadata["skipped"], [f"{self.folder}/in/photo.jpg"])
        self.assertRegex(done.stderr, "warning: 1 file passed over: .*photo.jpg: byte 2 is NUL: it is a binary file")
        self.assertIn("\n4 files read, 1 passed over\n", done.stderr)
        self.assertRegex(done.stderr, f"gpt-train --data.bin {self.out}/tokens_bpe.bin --data.metadata ")
        self.assertEqual(sorted(p.name for p in self.out.iterdir()),
                         ["bpe_tokenizer.json", "tokens_bpe.bin", "tokens_bpe_metadata.json"])

    def test_standard_input(self):
        for tokenizer in ("byte", "char", "bpe:300"):
            self.prepare("-", tokenizer=tokenizer, stdin="hello hello hello", words=("--validation-fraction", 0))
            by_input = (self.out / "tokens_bpe.bin").read_bytes()
            self.prepare(self.file("a.txt", "hello hello hello"), tokenizer=tokenizer, words=("--validation-fraction", 0))
            self.assertEqual((self.out / "tokens_bpe.bin").read_bytes(), by_input)
            self.assertEqual(len(list(self.out.iterdir())), 3)
        self.prepare("-.jsonl", stdin='{"body": "a"}\n', words=("--text-field", "body", "--validation-fraction", 0))
        self.assertEqual(ids(self.out / "tokens_bpe.bin"), [97])
        self.assertEqual(self.metadata()["sources"], [{"path": "standard input", "bytes": 14}])
        for tokenizer in ("byte", "char"):  # read once and twice
            words = ("--input", "-.gz", "--tokenizer", tokenizer, "--validation-fraction", 0, "--output", self.out)
            done = subprocess.run(command("gpt-prepare", *words), input=gzip.compress(b"abcab"), capture_output=True, timeout=programs.HANGS)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(ids(self.out / "tokens_bpe.bin"), [97, 98, 99, 97, 98] if tokenizer == "byte" else [0, 1, 2, 0, 1])

    def test_a_vocabulary_that_the_text_cannot_fill_is_said(self):
        text = self.file("a.txt", "hello hello hello")
        done = self.prepare(text, tokenizer="bpe:300", words=("--validation-fraction", 0))
        self.assertRegex(done.stderr, r"warning: tokenizer bpe:300: the text is too short for so many tokens; 2\d\d were learned\n")
        self.assertNotIn("warning", self.prepare(text, tokenizer="bpe:258", words=("--validation-fraction", 0)).stderr)

    def test_the_next_command_trains_on_bins_for_other_programs(self):
        done = self.prepare(programs.write_text(self.folder, sentences=2000), words=("--format", "nanogpt", "--json"))
        written = json.loads(done.stdout)
        self.assertEqual(written["files"], [f"{self.out}/{name}" for name in ("train.bin", "val.bin", "bpe_tokenizer.json")])
        self.assertGreater(written["metadata"]["train"]["tokens"], 0)
        quiet = self.prepare(self.folder / "text.txt", words=("--format", "nanogpt", "--quiet", "--force"))
        self.assertEqual((quiet.stdout, quiet.stderr), ("", ""))
        self.assertRegex(self.prepare(self.folder / "none", words=("-q",), code=3).stderr, "^error: .*none")
        words = done.stderr.splitlines()[-1].removeprefix("Next: gpt-train ").split()
        run("gpt-train", *words, *flags({**TINY, "training.max_steps": 1, "output_dir": self.folder / "run"}),
            check_code=0)

    def test_line_ends_and_byte_order_marks_of_windows(self):
        text = "one\r\ntwo\r\n"
        done = self.prepare("-", stdin="\ufeff" + text, words=("--validation-fraction", 0))
        self.assertEqual(bytes(ids(self.out / "tokens_bpe.bin")), b"one\ntwo\n")
        self.assertIn("1 file had Windows line ends (CRLF), which became LF; 1 file began with a UTF-8 byte-order mark", done.stderr)
        self.assertEqual((self.metadata()["crlf_files"], self.metadata()["byte_order_mark_files"]), (1, 1))
        self.assert_refused(3, r"utf16.txt: it looks like UTF-16; convert it to UTF-8 \(iconv -f UTF-16 -t UTF-8\)",
                            self.file("utf16.txt", text.encode("utf-16")))

    def test_what_cannot_be_read_in_a_folder_is_passed_over(self):
        packed = gzip.compress(b"".join(b"%d " % (i * 7919) for i in range(200_000)))
        self.file("in/a.txt", "first")
        self.file("in/b.txt.gz", packed[:-1000])
        self.file("in/c.txt", "last")
        done = self.prepare(self.folder / "in", words=("--validation-fraction", 0))
        self.assertEqual(bytes(ids(self.out / "tokens_bpe.bin")), b"firstlast")
        self.assertEqual(self.metadata()["skipped"], [f"{self.folder}/in/b.txt.gz"])
        self.assertRegex(done.stderr, "warning: 1 file passed over: .*/in/b.txt.gz: the gzip data are cut off.*; reading starts again")
        self.assertIn("\n2 files read, 1 passed over\n", done.stderr)
        self.assert_refused(3, "b.txt.gz: the gzip data are cut off", self.folder / "in/b.txt.gz")
        self.assert_refused(3, "b.txt.gz: the gzip data are cut off", self.folder / "in", "-", stdin="cannot be read again",
                            words=["--deduplicate", "none"])

    def test_formats_of_nanogpt_and_llm_c(self):
        text = self.file("a.txt", bytes(range(32, 127)) * 10)
        self.prepare(text, words=("--format", "nanogpt"))
        self.assertEqual(ids(self.out / "train.bin") + ids(self.out / "val.bin"), list(text.read_bytes()))
        self.assertEqual(len(ids(self.out / "train.bin")), 855)
        shutil.rmtree(self.out)
        self.prepare(text, words=("--format", "llmc"))
        header = struct.unpack("<256i", (self.out / "val.bin").read_bytes()[:1024])
        self.assertEqual(header[:4], (20240520, 1, 95, 0))
        self.assertEqual(ids(self.out / "val.bin", header=1024), list(range(32, 127)))

    def test_gpt_train_takes_what_it_made(self):
        text = programs.write_text(self.folder)
        self.prepare(text, tokenizer="bpe:300")
        options = {**TINY, "training.max_steps": 3, "output_dir": self.folder / "run", "data.bin": self.out / "tokens_bpe.bin",
                   "data.metadata": self.out / "tokens_bpe_metadata.json"}
        run("gpt-train", *flags(options), check_code=0)
        sample = run("gpt-generate", "--checkpoint", self.folder / "run", "--device", "cpu", "--prompt", "the fox", check_code=0)
        self.assertTrue(sample.stdout.startswith("the fox"))

    def test_errors_are_one_line_and_leave_nothing(self):
        packed = gzip.compress(os.urandom(100000))
        self.file("bare/.hidden", "x")
        self.assert_refused(3, "absent.txt: No such file", self.folder / "absent.txt")
        self.assert_refused(3, "empty.txt: it is empty", self.file("empty.txt", ""))
        self.assert_refused(3, "binary.txt: byte 2 is NUL", self.file("binary.txt", b"ab\0c"))
        self.assert_refused(3, "cut.txt.gz: the gzip data are cut off", self.file("cut.txt.gz", packed[:50000]))
        self.assert_refused(3, "a.jsonl: line 2: there is no field 'text'", self.file("a.jsonl", '{"text": "a"}\n{"txt": "b"}\n'))
        self.assert_refused(3, "bare: there is no text file in this folder", self.folder / "bare")
        self.assert_refused(3, "latin1.txt: byte 3: 0xE9 is not valid UTF-8", self.file("latin1.txt", b"caf\xe9"), tokenizer="char")
        self.assert_refused(2, "did you mean '--input'", words=("--inptu", "x"))
        self.assertFalse(self.out.exists())
        self.out.mkdir()
        self.assert_refused(2, "is both input and output", self.out)

    def test_a_full_disk_leaves_nothing(self):
        text = self.file("a.txt", b"x" * 3_000_000)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        done = subprocess.run(command("gpt-prepare", "--input", text, "--tokenizer", "byte", "--output", self.out),
                              preexec_fn=limit, capture_output=True, text=True, timeout=programs.HANGS)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertRegex(done.stderr, "^error: cannot write .*tokens_bpe.bin: write failed: File too large\n$")
        self.assertFalse(self.out.exists())

    def start(self, *words):
        """Waits for input that never ends, so that a signal always comes midway."""
        process = subprocess.Popen(command("gpt-prepare", "--input", "-", "--output", self.out, *words), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdin.close)
        process.stdin.write(b"some words " * 200_000)
        process.stdin.flush()
        deadline = time.monotonic() + programs.HANGS
        while not any(self.out.rglob(".*.tmp-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        return process

    def test_a_signal_leaves_nothing(self):
        for how, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for tokenizer in ("byte", "char", "bpe:300"):
                process = self.start("--tokenizer", tokenizer)
                self.assertTrue(list(self.out.rglob(".*.tmp-*")), "unfinished files")
                process.send_signal(how)
                error = process.stderr.read().decode()
                self.assertEqual(process.wait(timeout=programs.HANGS), code, error)
                self.assertRegex(error, "^error: interrupted; nothing was written to ")
                self.assertFalse(self.out.exists())
                process.stdout.close()
                process.stderr.close()

    def test_a_killed_run_leaves_nothing_once_the_next_has_run(self):
        process = self.start("--tokenizer", "byte")
        process.kill()
        process.communicate()
        self.assertTrue(all(path.name.startswith(".") for path in self.out.iterdir()))
        self.prepare(self.file("a.txt", "text"))
        self.assertEqual(len(list(self.out.iterdir())), 3)

    def test_one_process_at_a_time(self):
        first = self.start("--tokenizer", "byte")
        self.assert_refused(2, f"{self.out} is in use by process {first.pid}: wait for it, stop it, or choose another --output",
                            self.file("a.txt", "text"))
        _, error = first.communicate(timeout=programs.HANGS)
        self.assertEqual(first.returncode, 0, error)
        self.assertEqual(self.metadata()["train"]["bytes"] + self.metadata()["validation"]["bytes"], 2_200_000)
        self.assertEqual(len(list(self.out.iterdir())), 3)

    def test_memory_is_bounded(self):
        path = self.folder / "large.txt"
        block = "".join(f"line {i} of a long text, with words in it\n" for i in range(25_000)).encode()
        with open(path, "wb") as large:
            for _ in range(300):
                large.write(block)
        peak = peak_memory(command("gpt-prepare", "--input", path, "--tokenizer", "byte", "--output", self.out))
        self.assertEqual((self.out / "tokens_bpe.bin").stat().st_size, 2 * path.stat().st_size)
        self.assertGreater(path.stat().st_size, 300e6)
        self.assertLess(peak, 256e6)

    def test_it_starts_without_libtorch(self):
        libraries = subprocess.run(["ldd", str(programs.BIN / "gpt-prepare")], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("torch", libraries)


if __name__ == "__main__":
    unittest.main()
