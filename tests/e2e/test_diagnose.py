"""gpt-diagnose as a user meets it: what it prints, and the status it leaves."""

import datetime
import os
import pathlib
import re
import shutil
import tempfile
import unittest

from programs import SOURCE, TINY, checks, flags, long, run, train, write_text

MACHINE_CHECKS = {"LibTorch", "CPU", "CPU instructions", "CPU attention", "memory", "CUDA"}
CONFIG_CHECKS = {"configuration", "threads", "device", "precision", "dataset", "tokens", "overlap", "batch", "length", "learning rate",
                 "validation", "workers", "parameters", "export", "vocabulary", "attention", "memory of the run", "compute", "speed", "time",
                 "disk speed", "disk space"}


class Diagnose(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpt-diagnose-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.text = write_text(self.folder)

    def config(self, text):
        path = self.folder / "c.yaml"
        path.write_text(text)
        return path

    def good_config(self):
        return self.config(f"device: cpu\noutput_dir: {self.folder}/run\ndata:\n  text: {self.text}\n"
                           "model: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 16, dropout: 0}\n"
                           "training: {batch_size: 4, max_steps: 100, eval_interval: 20}\n")

    def test_the_machine_alone(self):
        found = checks()
        self.assertLessEqual(MACHINE_CHECKS, set(found))
        self.assertFalse(CONFIG_CHECKS & set(found))

    def test_a_good_configuration_passes(self):
        found = checks("--config", self.good_config(), check_code=0)
        self.assertLessEqual(MACHINE_CHECKS | CONFIG_CHECKS, set(found))
        self.assertEqual(found["configuration"]["status"], "pass")
        self.assertIn("training and", found["dataset"]["detail"])
        self.assertFalse((self.folder / "run").exists(), "a diagnosis must leave no trace")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["c.yaml", "text.txt"])

    def test_every_finding_that_is_no_pass_has_a_fix(self):
        found = checks("--config", self.good_config(), "--learning-rate", "0.5", "--norm", "layernorm", "--no-probe", check_code=0)
        self.assertEqual(found["learning rate"]["status"], "warn")
        self.assertIn("no such form: model.norm layernorm", found["export"]["detail"])
        for check in found.values():
            self.assertEqual(check["fix"] == "", check["status"] == "pass", check)

    def test_the_table_has_one_line_a_check_and_no_colours_in_a_pipe(self):
        config = self.good_config()
        names = checks("--config", config, "--no-probe")
        table = run("gpt-diagnose", "--config", config, "--no-probe", check_code=0).stdout
        self.assertNotIn("\033", table)
        rows = table.split("\n\n")[0].splitlines()
        self.assertEqual(len(rows), len(names))
        for row in rows:
            self.assertRegex(row, r"^(pass|warn|fail)  \S")

    def test_flags_alone_are_a_configuration(self):
        options = {**TINY, "data.text": self.text, "output_dir": self.folder / "run"}
        found = checks(*flags(options), "--no-probe", check_code=0)
        self.assertIn("dataset", found)

    def test_a_typo_is_one_line_and_exit_2(self):
        path = self.config("model:\n  n_heds: 4\n")
        done = run("gpt-diagnose", "--config", path, "--json", check_code=2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("c.yaml:2:3", done.stderr)
        self.assertIn("n_head", done.stderr)

    def test_missing_data_fails(self):
        self.text.unlink()
        found = checks("--config", self.good_config(), check_code=1)
        self.assertEqual(found["dataset"]["status"], "fail")
        self.assertIn("text.txt", found["dataset"]["detail"])
        self.assertEqual(found["model"]["status"], "warn", "what could not be checked says so")

    def test_no_data_at_all_fails(self):
        path = self.config("device: cpu\n")
        found = checks("--config", path, check_code=1)
        self.assertEqual(found["dataset"]["status"], "fail")

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "a GPU is there")
    def test_a_gpu_asked_for_where_there_is_none_fails(self):
        found = checks("--config", self.good_config(), "--device", "cuda", "--no-probe", check_code=1)
        self.assertEqual(found["device"]["status"], "fail")
        self.assertIn("device: auto", found["device"]["fix"])
        self.assertEqual(found["dataset"]["status"], "pass", "the rest is checked all the same")

    def test_a_run_that_does_not_fit_in_memory_fails_with_a_batch_that_does(self):
        write_text(self.folder, sentences=40_000)
        found = checks("--config", self.good_config(), "--block_size", 128, "--n_embd", 512, "--n_layer", 12, "--batch_size", 1_000_000,
                       check_code=1)
        self.assertEqual(found["memory of the run"]["status"], "fail")
        self.assertIn("training.batch_size: ", found["memory of the run"]["fix"])

    def test_a_checkpoint_is_verified(self):
        train(self.folder / "run", self.text, training__max_steps=2)
        found = checks("--checkpoint", self.folder / "run", check_code=0)
        self.assertIn("step 2", found["checkpoint"]["detail"])
        path = self.folder / "run" / "ckpt.pt"
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        found = checks("--checkpoint", path, check_code=1)
        self.assertEqual(found["checkpoint"]["status"], "fail")

    def test_a_damaged_checkpoint_is_answered_with_one_that_can_be_read(self):
        train(self.folder / "run", self.text, training__max_steps=4, training__checkpoint_interval=2, training__keep_last=3)
        path = self.folder / "run" / "ckpt.pt"
        path.write_bytes(path.read_bytes()[:1000])
        # The newest numbered checkpoint is the same file under another name.
        self.assertIn("ckpt_step_00000002.pt, which is at step 2", checks("--checkpoint", path)["checkpoint"]["fix"])
        fix = checks("--checkpoint", self.text)["checkpoint"]["fix"]
        self.assertIn("name a checkpoint that gpt-train has written", fix)

    def test_tokens_that_are_not_there_are_answered_with_gpt_prepare(self):
        found = checks("--bin", self.folder / "data" / "train.bin", "--device", "cpu", check_code=1)
        self.assertEqual(found["dataset"]["fix"], f"make it with gpt-prepare --input TEXT --output {self.folder}/data")

    def test_a_folder_that_holds_another_run_is_a_warning(self):
        train(self.folder / "run", self.text, training__max_steps=2)
        same = {**TINY, "data.text": self.text, "output_dir": self.folder / "run", "training.max_steps": 4}
        found = checks(*flags(same), "--no-probe", check_code=0)
        self.assertIn("step 2 of 4: the same command continues the run", found["output folder"]["detail"])
        for key, value in {"model.n_embd": 64, "data.text": self.other_text()}.items():
            found = checks(*flags({**same, key: value}), "--no-probe", check_code=0)
            self.assertEqual(found["output folder"]["status"], "warn", key)
            self.assertIn("belongs to another run", found["output folder"]["detail"])
            self.assertIn("memory of the run", found)
            self.assertIn(f"set output_dir: {self.folder}/run-2", found["output folder"]["fix"])

    def other_text(self):
        path = self.folder / "other.txt"
        path.write_text("another text altogether, for another run\n" * 300)
        return path

    def test_time_and_cost_come_from_a_trial_of_real_steps(self):
        found = checks("--config", self.good_config(), "--price-per-hour", 3600, check_code=0)
        self.assertAlmostEqual(found["cost"]["values"]["cost"], found["time"]["values"]["seconds_left"])
        self.assertRegex(found["time"]["detail"], r"tokens/s and [\d.]+ ms a step in a trial of [\d,]+ updates; .* for 100 steps with validation")
        self.assertNotIn("time", checks("--config", self.good_config(), "--no-probe", check_code=0))

    def test_a_run_of_years_is_a_warning(self):
        found = checks("--config", self.good_config(), "--max_steps", 10**11, "--warmup_steps", 10, "--seconds-per-step", 1, check_code=0)
        for name in ("time", "length"):
            self.assertEqual(found[name]["status"], "warn", found[name])
        self.assertIn(" years for 100,000,000,000 steps", found["time"]["detail"])

    # Three epochs of 159,015 steps at 0.113 s are 14.97 hours; 7 units each make 104.8.
    ARITHMETIC = ("--steps-per-epoch", 159_015, "--epochs", 3, "--seconds-per-step", 0.113)

    def test_a_time_gives_the_number_of_steps(self):
        found = checks("--steps-per-epoch", 1000, "--max_time", "10 minutes", "--seconds-per-step", 0.1, "--eval_interval", 0, check_code=0)
        self.assertEqual(found["length"]["detail"], "6,000 steps at 1,000 an epoch")
        self.assertTrue(found["time"]["detail"].startswith("100 ms a step as given; 1m40s an epoch; 10m00s for 6,000 steps"), found["time"])

    def test_time_and_cost_are_arithmetic_where_the_speed_is_known(self):
        found = checks(*self.ARITHMETIC, "--units-per-hour", 7, "--budget", 120, check_code=0)
        self.assertEqual(set(found), {"configuration", "length", "time", "cost"})
        time, cost = found["time"]["values"], found["cost"]["values"]
        self.assertAlmostEqual(time["seconds_left"], 159_015 * 3 * 0.113, places=3)
        self.assertAlmostEqual(time["seconds_per_epoch"], 159_015 * 0.113, places=3)
        done = datetime.datetime.strptime(time["done_at"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
        self.assertAlmostEqual(done, datetime.datetime.now().timestamp() + time["seconds_left"], delta=300)
        self.assertAlmostEqual(cost["cost"], 104.8, places=1)
        self.assertIs(cost["enough"], True)
        table = run("gpt-diagnose", *self.ARITHMETIC, "--price-per-hour", 7, "--budget", 60, check_code=1).stdout
        self.assertIn("14h58m for 477,045 steps", table)
        self.assertRegex(table, r"fail  cost .* not enough: it pays for 273,072 of 477,045 steps  -> 105 would be enough, or set "
                                r"training.max_steps: 273072\n")
        self.assertRegex(table, r"\n\nHow long\?  14h58m, done .*\nHow much\?  104.8 of 60: not enough\n$")

    def test_a_run_that_has_begun_costs_what_is_left(self):
        train(self.folder / "run", self.text, training__max_steps=2)
        same = flags({**TINY, "data.text": self.text, "output_dir": self.folder / "run", "training.max_steps": 8,
                      "training.eval_interval": 0})
        paid = ("--seconds-per-step", 3600, "--price-per-hour", 0.5)
        found = checks(*same, *paid, check_code=0)
        self.assertIn("6h00m for the last 6 steps", found["time"]["detail"])
        self.assertEqual(found["cost"]["values"]["cost"], 3)
        fresh = [*self.ARITHMETIC, *paid[2:], "--checkpoint", self.folder / "run"]
        found = checks(*fresh, check_code=0)
        self.assertEqual(found["checkpoint"]["status"], "pass")
        self.assertEqual(found["time"]["values"]["steps_left"], 159_015 * 3 - 2)

    def test_a_card_that_is_not_here_is_estimated_from_its_data_sheet(self):
        config = ("--config", self.good_config())
        found = checks(*config, "--gpu", "geforce rtx4080 super", "--price-per-hour", 1, check_code=0)
        self.assertTrue(MACHINE_CHECKS.isdisjoint(found), "this machine does not matter")
        self.assertIn("--gpu RTX 4080 SUPER, not this machine: 16.1 GB", found["device"]["detail"])
        self.assertIn("of the 16.1 GB that it may use", found["memory of the run"]["detail"])
        self.assertIn("bfloat16 end to end", found["precision"]["detail"])
        self.assertIn("estimated from the data sheet", found["time"]["detail"])
        self.assertGreater(found["cost"]["values"]["cost"], 0)
        self.assertIn("float16", checks(*config, "--gpu", "t4", check_code=0)["precision"]["detail"])
        found = checks(*config, "--gpu", "t4", "--dtype", "bfloat16", check_code=1)
        self.assertIn("not supported by the hardware of T4", found["precision"]["detail"])
        given = checks(*config, "--gpu", "t4", "--seconds-per-step", 36, check_code=0)
        self.assertIn("36s a step as given", given["time"]["detail"], "a speed that is known takes precedence")

    def test_every_tier_fits_its_smallest_card(self):
        for name, card in (("24gb", "RTX 4090"), ("10_16gb", "RTX 3080"), ("12gb", "RTX 3060"), ("8_12gb", "RTX 4060 Ti"), ("4gb", "GTX 1650 Ti")):
            found = checks("--config", SOURCE / "configs" / f"tier_{name}.yaml", "--gpu", card, "--vocab-size", 65,
                           "--steps-per-epoch", 1000)
            self.assertEqual(found["memory of the run"]["status"], "pass", name)

    def test_a_bin_is_read_as_fast_as_training_takes_it(self):
        path = self.folder / "ids.bin"
        path.write_bytes(os.urandom(4 << 20).translate(bytes(i % 2 for i in range(256))))  # ids of 0, 1, 256 and 257
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            self.skipTest("this file system always caches files")
        words = ("--bin", path, "--vocab_size", 300, "--data.num_workers", 0, "--output_dir", self.folder / "run", *flags(TINY))
        slow = checks(*words, "--seconds-per-step", 1)["data speed"]
        self.assertEqual(slow["status"], "pass")
        self.assertRegex(slow["detail"], r"ids\.bin is read at .*/s past the page cache; training takes 256 bytes/s")
        fast = checks(*words, "--seconds-per-step", 1e-9, check_code=0)["data speed"]
        self.assertEqual(fast["status"], "warn")
        self.assertNotIn("data speed", checks("--config", self.good_config(), "--seconds-per-step", 1), "a small text stays in memory")
        large = checks("--data", SOURCE / "data/shakespeare.txt", "--output_dir", self.folder / "run", *flags(TINY), "--seconds-per-step", 1)
        self.assertIn("/s past the page cache", large["data speed"]["detail"], "a large one is read from the cache of prepared texts")

    def test_neither_data_nor_card_need_be_here(self):
        found = checks("--gpu", "RTX 4090", "--preset", "gpt2_small", "--vocab-size", 50257, "--batch-size", 8, "--steps-per-epoch", 1000,
                       "--epochs", 2, check_code=0)
        self.assertIn("of the 24.2 GB that it may use", found["memory of the run"]["detail"])
        self.assertIn("for 2,000 steps", found["time"]["detail"])

    def test_another_size_of_memory(self):
        config = ("--config", self.good_config(), "--no-probe")
        self.assertEqual(checks(*config, "--memory", "16 GB", check_code=0)["memory of the run"]["status"], "pass")
        found = checks(*config, "--memory", "32MiB", check_code=1)
        self.assertIn(", and it may use 33.6 MB: ", found["memory of the run"]["detail"])
        found = checks(*config, "--gpu", "RTX 4090", "--memory", "48GB", check_code=0)
        self.assertIn("of the 48.0 GB that it may use", found["memory of the run"]["detail"])

    def test_what_does_not_fit_is_told_what_would_save_memory(self):
        words = ("--gpu", "GTX 1650 Ti", "--preset", "gpt2_small", "--vocab-size", 50257, "--batch-size", 8, "--steps-per-epoch", 1000)
        memory = checks(*words, check_code=1)["memory of the run"]
        self.assertEqual(memory["savers"][0]["setting"], "training.gradient_checkpointing: block")
        self.assertGreater(memory["values"]["needed_bytes"], memory["values"]["available_bytes"])
        self.assertLess(memory["values"]["largest_batch_size"], 8)
        table = run("gpt-diagnose", *words, check_code=1).stdout
        self.assertRegex(table, r"\nDoes it fit\?  no: it needs about .* GB, and there is 4.03 GB; at most \d+ sequences? at a time would fit\n")
        self.assertRegex(table, r"\n\nSettings that would save memory, each on its own:\n  [\d.]+ GB  training.gradient_checkpointing: block ")

    @long
    def test_several_processes_share_the_memory_and_the_cores_of_a_machine(self):
        options = ("--config", self.good_config(), "--threads", 1, "--memory", "8GB")
        one, two = (checks(*options, "--processes", count, check_code=0) for count in (1, 2))
        self.assertNotIn("processes", one)
        memory = two["memory of the run"]
        self.assertEqual(one["memory of the run"]["values"]["available_bytes"], 8e9)
        self.assertEqual(memory["values"]["available_bytes"], 4e9)
        self.assertIn("; so in each of 2 processes", memory["detail"])
        values = two["processes"]["values"]
        # An update has one micro-batch of four sequences, which becomes two of two.
        self.assertEqual([values[name] for name in ("processes", "threads", "micro_batches", "most_micro_batches")], [2, 1, 2, 1])
        self.assertEqual(values["bytes_sent_per_update"], memory["values"]["gradients_bytes"], "half of them, and half of their sum")
        self.assertEqual(values["bytes_of_each"], memory["values"]["needed_bytes"])
        self.assertEqual(memory["values"]["exchange_bytes"], memory["values"]["gradients_bytes"], "what arrives")
        step = values["computing_seconds"] + values["sending_seconds"]
        self.assertAlmostEqual(two["time"]["values"]["seconds_per_step"], step)
        self.assertAlmostEqual(values["gain"], values["seconds_of_one"] / step)
        self.assertRegex(two["time"]["detail"], "with .* of sending between 2 processes")

    def test_the_configuration_names_processes_as_the_flag_does_and_a_line_recommends_their_number(self):
        path = self.good_config()
        flag = run("gpt-diagnose", "--config", path, "--processes", 2, check_code=0).stdout
        self.assertRegex(flag, r"\n(pass|warn)  processes  +2 with \d+ threads?: each takes about .*, computes 1 of the 2 micro-batches of an "
                               r"update, and sends .*; a step is .* of computing \(tried without the others beside it\) and .* of sending "
                               r"beyond it \(measured over the loopback\)")
        self.assertRegex(flag, r"\nHow many processes\?  (one: with 2 a step takes .* times as long, because of .*|"
                               r"2: at most .* times the tokens/s of one, limited by .*)\n$")
        path.write_text(path.read_text() + "distributed: {processes: 2}\n")
        detail = checks("--config", path, "--no-probe", check_code=0)["processes"]["detail"]
        self.assertTrue(detail.startswith("2 with "), detail)
        self.assertNotIn("a step is", detail)

    def test_several_cards_are_joined_by_what_their_data_sheet_says(self):
        words = ("--preset", "gpt2_small", "--vocab-size", 50257, "--batch-size", 16, "--gradient-accumulation-steps", 8, "--steps-per-epoch",
                 1000, "--processes", 8)
        found = checks("--gpu", "H100 SXM", *words, check_code=0)
        values, memory = found["processes"]["values"], found["memory of the run"]["values"]
        # 124,475,904 parameters of four bytes; the sum of eight needs 2 x 7/8 of them.
        self.assertEqual(values["bytes_sent_per_update"], 1.75 * 4 * 124_475_904)
        self.assertEqual(memory["exchange_bytes"], 3 * 25 * 2**20, "what arrives of three stretches")
        # Nothing of it is hidden while a recorded step computes. Each of 19 stretches, and the loss, has eight messages of 3.4 us.
        self.assertAlmostEqual(values["sending_seconds"], values["bytes_sent_per_update"] / (0.6 * 450e9) + (19 + 1) * 8 * 3.4e-6, delta=3e-5)
        self.assertIn("of sending beyond it (computed, not measured: 60 % of the 450 GB/s of NVLink 4)", found["processes"]["detail"])
        self.assertGreater(values["gain"], 6)
        self.assertLess(values["gain"], 8)
        half = checks("--gpu", "H100 SXM", *words, "--reduce-dtype", "bfloat16", check_code=0)["processes"]["values"]
        self.assertEqual(half["bytes_sent_per_update"], values["bytes_sent_per_update"] / 2)
        self.assertIn("PCIe 4 x16", checks("--gpu", "RTX 3090", *words, check_code=0)["processes"]["detail"])

    @long
    def test_a_faster_arrangement_of_as_many_processes_is_named(self):
        words = ("--gpu", "H100 SXM", "--preset", "gpt2_xl", "--vocab-size", 50257, "--n_head", 32, "--d_model", 4096, "--batch-size", 4,
                 "--gradient-accumulation-steps", 64, "--steps-per-epoch", 1000, "--processes", 16)
        found = lambda *arrangement: checks(*words, *arrangement, check_code=0)["processes"]["values"]
        seconds = lambda values: values["computing_seconds"] + values["sending_seconds"]
        slow = found("--tensor-parallel", 8, "--pipeline-parallel", 2)
        settings, share = re.fullmatch(r"(.*) would take (\d+) % of the time", slow["faster"]).groups()
        fast = found(*[f"--{key.replace('_', '-')}={value}" for key, value in (each.split(": ") for each in settings.split(", "))])
        self.assertNotIn("faster", fast)
        self.assertAlmostEqual(seconds(fast) / seconds(slow), int(share) / 100, delta=0.006)
        one = checks(*words[:-1], 4)
        self.assertRegex(one["processes"]["values"]["faster"], r"^zero: 3.* would fit$")

    def test_options_that_contradict_or_lack_each_other_are_refused_in_a_line(self):
        config = ("--config", self.good_config())
        for words, part in (
                (("--price-per-hour", 2), "name one with --config, --data"),
                ((*config, "--budget", 2), "--budget needs a rate"),
                ((*config, "--price-per-hour", 2, "--units-per-hour", 2), "two ways to pay"),
                ((*config, "--price-per-hour", 2, "--no-probe"), "leave out --no-probe, or add --seconds-per-step"),
                ((*config, "--price-per-hour", "2 dollars"), "must be a number from 0 to 1e12, got '2 dollars'"),
                ((*config, "--seconds-per-step", 0), "--seconds-per-step must be a number"),
                ((*config, "--steps-per-epoch", 5), "add --seconds-per-step or --gpu"),
                ((*config, "--gpu", "RTX 4085"), "the nearest are RTX 4080, RTX 3080, RTX 4060; all: "),
                ((*config, "--gpu", "RTX 4080", "--device", "cpu"), "--device about this one"),
                (("--gpu", "RTX 4080"), "--gpu is about a run"),
                ((*config, "--gpu", "RTX 4080", "--processes", "auto"), "give distributed.processes a number"),
                ((*config, "--memory", "16"), "a size with its unit, such as 16GB or 24GiB, got '16'"),
                ((*config, "--memory", "-1GB"), "got '-1GB'"),
                (("--data", self.text, "--steps-per-epoch", 5, "--seconds-per-step", 1), "leave out either it or --data"),
                (("--cache", "--budget", 2), "leave out --budget"),
                (("--run", self.folder, "--seconds-per-step", 2), "leave out --seconds-per-step")):
            done = run("gpt-diagnose", *words, check_code=2)
            self.assertEqual(done.stdout, "", words)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main()
