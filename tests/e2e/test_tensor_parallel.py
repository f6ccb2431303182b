"""Processes that divide the model: the run, the folder and the checkpoint of one process, on any mesh; and what cannot be divided."""

import pathlib
import re
import unittest

import torch

import programs
import ranks

# Three sequences in each of four micro-batches, which two groups share. AdamW's epsilon keeps roundings small: see
# tests/run/tensor_parallel_run_test.cpp.
RUN = {"model.n_head": 4, "model.n_kv_head": 2, "model.n_hidden": 72, "training.batch_size": 3,
       "training.gradient_accumulation_steps": 4, "training.eps": 1e-3, "training.lr_schedule": "constant", "training.warmup_steps": 2,
       "training.sample_interval": 12, "training.sample_tokens": 30}
GPT2 = {"model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned", "model.bias": "true", "model.n_kv_head": 4}
TASKS = {"training.eval_tasks": f"piqa:{ranks.TASK}", "training.eval_task_limit": 3, "model.block_size": 96, "data.tokenizer": "byte"}


def mesh(processes, tensor, zero=0):
    return {"distributed.processes": processes, "distributed.tensor_parallel": tensor, "distributed.zero": zero}


class TestTensorParallel(ranks.DividedRun):
    RUN = RUN

    def assert_same_run(self, one, other):
        a, b = programs.losses(self.folder / one), programs.losses(self.folder / other)
        self.assertEqual(a.keys(), b.keys())
        for step, value in a.items():
            for x, y in zip(*([v] if isinstance(v, float) else v for v in (value, b[step]))):
                self.assertAlmostEqual(x, y, delta=1e-4 * x, msg=step)
        a, b = self.state(one)["model"], self.state(other)["model"]
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            self.assertLess((a[name] - b[name]).abs().max().item(), 1e-4, name)

    def test_any_mesh_computes_the_run_of_one_process(self):
        """Also of one whose groups divide the weights of their parts, evaluates tasks and writes samples."""
        for family, zero in programs.cases((TASKS, 3), (GPT2, 0), few=((TASKS, 3),)):
            name = family.get("model.norm", "llama")
            self.train(name, **family)
            for processes, tensor in programs.cases((2, 2), (4, 2), few=((4, 2),)):
                done = self.train(f"{name} {processes}", **family, **mesh(processes, tensor, zero))
                self.assertIn("they divide the model" if processes == tensor else "each 2 of them divide the model", done.stderr)
                self.assert_same_run(name, f"{name} {processes}")
                self.assert_same_files(name, f"{name} {processes}")

    @programs.long
    def test_a_run_goes_on_with_another_mesh(self):
        self.train("straight", training__max_steps=24)
        for step, of in ((8, mesh(4, 2, zero=3)), (16, mesh(1, 1)), (24, mesh(4, 2, zero=3))):
            self.train("changed", training__max_steps=step, **of)
        self.assert_same_run("straight", "changed")

    def test_a_mesh_goes_on_to_the_bit_after_a_signal(self):
        self.stop_and_go_on("run", 1, **(mesh(4, 2, zero=3) if programs.ALL else mesh(2, 2)))
        self.assert_same_weights("undisturbed run", "run")

    def test_a_folder_that_is_moved_away_loses_nothing(self):
        for name, options in (("float32", {}), ("codes", {"training.use_8bit": "true"})):
            run = ranks.begin(self, self.folder / name, self.text, **{**self.RUN, **mesh(2, 2), **options, "training.max_steps": 1_000_000,
                                                                      "training.checkpoint_interval": 5, "training.eval_interval": 0})
            ranks.await_checkpoint(self, self.folder / name, run)
            (self.folder / name).rename(self.folder / f"{name} moved")
            _, errors = run.communicate(timeout=programs.HANGS)
            self.assertEqual(run.returncode, 8, errors)
            saved = re.search(r"step (\d+) is saved in (.+?); the same command with --output_dir", errors)
            self.assertTrue(saved, errors)
            self.assertEqual(torch.load(pathlib.Path(saved[2]) / "ckpt.pt", weights_only=True)["step"], int(saved[1]))

    def test_a_killed_process_ends_the_run_with_its_name(self):
        self.assert_a_killed_process_is_named(**mesh(2, 2))

    @programs.long
    def test_it_goes_back_from_a_spike_as_one_process_does(self):
        options = {"training.on_divergence": "rollback", "training.spike_window": 8, "training.spike_threshold": 2,
                   "training.checkpoint_interval": 4, "training.eval_interval": 0, "training.learning_rate": 0.1, "training.eps": 1e-6,
                   "training.gradient_clip": 0, "training.sample_interval": 0}
        one, two = self.train("one", **options), self.train("two", **options, **mesh(2, 2))
        first = lambda done: re.search(r"step \d+: .* went back to the weights of step \d+", done.stderr)
        self.assertTrue(first(one), one.stderr)
        self.assertTrue(first(two), two.stderr)
        words = lambda done: re.sub(r"\d\.\d+", "x", first(done).group())
        self.assertEqual(words(one), words(two))

    def test_what_cannot_be_divided_is_refused_by_name(self):
        for options, words in (
                ({**mesh(3, 2)}, "tensor_parallel 2 does not divide 3 processes; set processes to 2 or 4"),
                ({**mesh(1, 2)}, "distributed.tensor_parallel: tensor_parallel 2 does not divide 1 process; set processes to 2"),
                ({**mesh(3, 3)}, "model.n_head is 4, which tensor_parallel 3 cannot divide evenly; set n_head to 3 or 6, or tensor_parallel to 1"),
                ({**mesh(4, 4)}, "model.n_kv_head is 2, which tensor_parallel 4 cannot divide evenly; set n_kv_head to 4, or tensor_parallel to 1"),
                ({**mesh(2, 2), "model.n_hidden": 71}, "model.n_hidden is 71, which tensor_parallel 2 cannot divide evenly; set "
                                                       "n_hidden to 70 or 72, or tensor_parallel to 1"),
                ({**mesh(2, 2), "training.use_compile": "false"}, "tensor_parallel needs use_compile's operators"),
                ({**mesh(2, 2), "training.optimizer": "muon"}, "Muon needs whole matrices, and tensor_parallel gives each process")):
            self.assert_refused(words, **options)

    def test_the_plan_knows_what_each_process_takes_and_sends(self):
        words = programs.flags({**programs.TINY, **RUN, "data.text": self.text, "model.n_embd": 256, "model.n_hidden": 1024,
                                "model.block_size": 64, "output_dir": self.folder / "x"})
        one = programs.checks(*words, "--no-probe")["memory of the run"]["values"]
        report = programs.checks(*words, *programs.flags(mesh(4, 2)), "--no-probe")
        two, several = report["memory of the run"]["values"], report["processes"]["values"]
        for part in ("weights_bytes", "gradients_bytes"):
            self.assertAlmostEqual(two[part], one[part] / 2, delta=0.05 * one[part])
        self.assertEqual(several["most_micro_batches"], 2)
        tokens, width, layers = 3 * 64, 256, 2
        norms = (2 * layers + 1) * 2 * width * 4  # 256 gradients each, padded to as many for each of two processes
        sums = (4 * layers + 2) * tokens * width * 4 + 4 * tokens * 4 + norms
        self.assertAlmostEqual(several["bytes_sent_per_update"], 2 * sums + two["gradients_bytes"], delta=1e-6 * sums)
        self.assertIn("half of the model for 2 of the 4 micro-batches", report["processes"]["detail"].replace("micro-batch of", "of"))


if __name__ == "__main__":
    unittest.main()
