"""Processes that have a stage of the model each: the run, the folder and the checkpoint of one process; and what cannot be divided so."""

import unittest

import torch

import programs
import ranks

# An untied head, so that the order of all additions is that of one process.
RUN = {"model.n_layer": 4, "model.tie_weights": "false", "training.batch_size": 3, "training.gradient_accumulation_steps": 4,
       "training.lr_schedule": "constant", "training.warmup_steps": 2, "training.sample_interval": 12, "training.sample_tokens": 30}
GPT2 = {"model.norm": "layernorm", "model.mlp": "gelu", "model.position": "learned", "model.bias": "true"}


def mesh(processes, stages, **more):
    return {"distributed.processes": processes, "distributed.pipeline_parallel": stages, **more}


class TestPipelineParallel(ranks.DividedRun):
    RUN = RUN

    def assert_same_run(self, one, other):
        self.assertEqual(programs.losses(self.folder / one), programs.losses(self.folder / other))
        self.assert_same_state(one, other)

    def assert_same_state(self, one, other):
        self.assert_same_weights(one, other)
        a, b = (self.state(name)["optimizer"]["state"] for name in (one, other))
        for name, state in a.items():
            for slot, value in state.items():
                self.assertTrue(torch.equal(value, b[name][slot]), f"{name} {slot}")

    def test_stages_compute_the_run_of_one_process_to_the_bit(self):
        for family in programs.cases({}, GPT2, few=({},)):
            name = family.get("model.norm", "llama")
            tasks = {"training.eval_tasks": f"piqa:{ranks.TASK}", "training.eval_task_limit": 2, "model.block_size": 96,
                     "data.tokenizer": "byte"}
            self.train(name, **family, **tasks)
            for processes in programs.cases(2, 4, few=(2,)):
                done = self.train(f"{name} {processes}", **family, **tasks, **mesh(processes, processes))
                self.assertIn("each has a stage of the model", done.stderr)
                self.assert_same_run(name, f"{name} {processes}")
                self.assert_same_files(name, f"{name} {processes}")
                scores = lambda folder: [m["metrics"] for m in programs.metrics(self.folder / folder) if "task" in m]
                self.assertEqual(scores(name), scores(f"{name} {processes}"))

    @programs.long
    def test_groups_of_stages_compute_the_run_of_as_many_processes(self):
        options = {**mesh(2, 1), "distributed.zero": 2, "training.freeze": "wte, h.0-1, h.2.attn", "training.optimizer": "muon",
                   "training.learning_rate": 1e-3}
        self.train("whole", **options)
        done = self.train("stages", **{**options, **mesh(4, 2)})
        self.assertIn("each has one of 2 stages of the model", done.stderr)
        self.assert_same_run("whole", "stages")

    @programs.long
    def test_stages_whose_weights_are_divided_compute_the_run_of_divided_weights(self):
        options = {"distributed.zero": 3, "training.gradient_accumulation_steps": 5}  # one pipeline has one micro-batch less
        self.train("weights", **mesh(2, 1), **options)
        self.train("both", **mesh(4, 2), **options)
        self.assert_same_run("weights", "both")
        self.assert_same_files("weights", "both")

    @programs.long
    def test_stages_whose_layers_are_divided_compute_the_run_of_divided_layers(self):
        divided = {"distributed.tensor_parallel": 2}
        self.train("layers", **mesh(2, 1, **divided))
        done = self.train("both", **mesh(4, 2, **divided))
        self.assertIn("each 2 of them divide one of 2 stages of the model", done.stderr)
        self.assert_same_run("layers", "both")
        self.assert_same_files("layers", "both")
        for folder in ("layers", "both"):
            self.train(folder, **mesh(1, 1), **{"training.max_steps": 30})
        self.assert_same_run("layers", "both")

    @programs.long
    def test_a_run_goes_on_with_another_arrangement(self):
        options = {"training.freeze": "h.2"}  # which is a stage of four
        self.train("straight", training__max_steps=24, **options)
        for step, of in ((6, mesh(4, 4)), (12, mesh(1, 1)), (18, mesh(3, 3)), (24, mesh(2, 2))):
            self.train("changed", training__max_steps=step, **options, **of)
        self.assert_same_state("straight", "changed")

    def test_it_goes_on_to_the_bit_after_a_signal(self):
        stages = ("stages", mesh(2, 2))
        divided = ("divided stages", mesh(4, 2, **{"distributed.tensor_parallel": 2}))
        for name, of in programs.cases(stages, divided, few=(stages,)):
            self.stop_and_go_on(name, 1, **of, **{"model.tie_weights": "true"})
            self.assert_same_state(f"undisturbed {name}", name)

    def test_a_killed_process_ends_the_run_with_its_name(self):
        self.assert_a_killed_process_is_named(**mesh(2, 2))

    def test_what_cannot_be_divided_is_refused_by_name(self):
        self.train("teacher", training__max_steps=3)
        for options, words in (
                ({**mesh(3, 2)}, "pipeline_parallel 2 does not divide 3 processes; set processes to 2 or 4"),
                ({**mesh(1, 2)}, "distributed.pipeline_parallel: pipeline_parallel 2 does not divide 1 process; set processes to 2"),
                ({**mesh(5, 5)}, "pipeline_parallel 5 is more than the 4 layers of the model, and each stage needs one; set it to 4 or less"),
                ({**mesh(6, 2), "distributed.tensor_parallel": 2},
                 "pipeline_parallel 2 and tensor_parallel 2 give each model 4 processes, which do not divide 6; set processes to 4 or 8"),
                ({**mesh(2, 2), "training.use_compile": "false"}, "pipeline_parallel needs use_compile's operators"),
                ({**mesh(2, 2), "training.use_amp": "true", "training.dtype": "bfloat16", "training.amp_mode": "autocast"},
                 "pipeline_parallel does not go with autocast"),
                ({**mesh(2, 2), "training.swap_activations": 1}, "swap_activations moves the activations of one micro-batch at a time"),
                ({**mesh(2, 2), "training.distill_from": self.folder / "teacher"}, "distill_from needs all of a teacher beside the head")):
            self.assert_refused(words, **options)

    def test_the_plan_knows_what_each_process_takes_and_sends(self):
        words = programs.flags({**programs.TINY, **RUN, "data.text": self.text, "model.n_embd": 256, "model.block_size": 64,
                                "training.gradient_accumulation_steps": 6, "output_dir": self.folder / "x"})
        one = programs.checks(*words, "--no-probe")["memory of the run"]["values"]
        report = programs.checks(*words, *programs.flags(mesh(4, 2)), "--no-probe")
        two, several = report["memory of the run"]["values"], report["processes"]["values"]
        for part in ("weights_bytes", "gradients_bytes", "optimizer_bytes"):
            self.assertLess(two[part], 0.6 * one[part], part)
        self.assertEqual(several["most_micro_batches"], 3)
        self.assertAlmostEqual(several["bubble"], 1 / 4)
        activations = 3 * (3 * 64) * 256 * 4
        norms = one["gradients_bytes"] / 256  # of each 256 gradients of the whole model
        self.assertAlmostEqual(several["bytes_sent_per_update"], activations + two["gradients_bytes"] + norms, delta=1e-3 * activations)
        self.assertIn("one of 2 stages of the model for 3 of the 6 micro-batches", report["processes"]["detail"])


if __name__ == "__main__":
    unittest.main()
