"""What scripts/measure_gpu.sh, sanitize_gpu.sh and kernels_gpu.sh do on a GPU, rehearsed on the CPU in a checkout of links to this one:
some parts of the first, and what the others make of the output of tools that need a GPU."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest

import programs


class Rehearsal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "a checkout")
        self.out = pathlib.Path(folder.name, "out")
        shutil.copytree(programs.SOURCE / "scripts", self.root / "scripts")
        for name in ("configs", "data", ".deps"):
            (self.root / name).symlink_to(programs.SOURCE / name)
        (self.root / "build").symlink_to(programs.BIN.parent)

    def run_script(self, *words, **variables):
        return subprocess.run(words, cwd=self.root, env={**os.environ, "PATIENCE": "20", **variables}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def write_program(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text("#!/usr/bin/env bash\n" + textwrap.dedent(text))
        path.chmod(0o755)

    def replace_tests(self, text):
        """Puts a script in the place of gpt_tests."""
        build = self.root / "build"
        build.unlink()
        (build / "bin").mkdir(parents=True)
        (build / "lib").symlink_to(programs.BIN.parent / "lib")
        for program in programs.BIN.iterdir():
            (build / "bin" / program.name).symlink_to(program)
        self.write_program(build / "bin/gpt_tests", text)


class MeasureGpu(Rehearsal):
    def measure(self, *words, parts=""):
        return self.run_script("scripts/measure_gpu.sh", self.out, *words, PARTS=parts)

    def summary_of(self, command, parts):
        """What it says of each part, by its name, and its other lines."""
        done = self.measure("cpu", command, parts=f"^({parts})$")
        self.assertEqual(done.returncode, 0, done.stdout)
        summary = (self.out / "summary.txt").read_text()
        found = dict(re.findall(r"^([a-z0-9_-]+) +((?:done|STOPPED|FAILED|left out).*)$", summary, re.MULTILINE))
        self.assertEqual(len(found), len(parts.split("|")), summary)
        return found, summary

    def parts_that_are_done(self, speeds, others):
        found, summary = self.summary_of("all", "|".join(speeds + others))
        for name in speeds + others:
            self.assertRegex(found[name], "^done in ", summary)
        for name in speeds:
            self.assertRegex(found[name], r", [1-9]\d* tokens/s$")
        self.assertNotRegex(summary, "FAILED|WRONG")
        return summary

    @programs.long
    def test_speeds_and_times_are_in_the_summary(self):
        summary = self.parts_that_are_done(("char-batch-8-default", "char-batch-8-reduce-overhead"), ("first-update",))
        self.assertRegex(summary, r"(?m)^from the start of gpt-train to its first update, gpt2: \d+ ms ")
        self.assertRegex(summary, r"(?m)^char-batch-8-reduce-overhead is \d+\.\d\d times as fast as char-batch-8-default ")
        self.assertTrue(self.out.with_name("out.tar.gz").exists())

    @programs.long
    def test_losses_and_speeds_of_both_programs_are_in_the_summary(self):
        summary = self.parts_that_are_done(("gpt2-max-autotune", "gpt2-pytorch-eager"), ("losses-start", "losses-full"))
        self.assertRegex(summary, r"(?m)^float32 .*: the losses of 100 updates \(wanted: 100\) differ by at most [\d.e-]+ % \(wanted: 1\): good$")

    @programs.long
    def test_a_part_that_fails_is_named_with_its_reason_and_the_others_go_on(self):
        (self.root / "scripts/pytorch_baseline.py").write_text("raise SystemExit('no GPU to be found')\n")
        found, summary = self.summary_of("sizes", "gpt2_medium-pytorch-blocks|gpt2_large-max-autotune")
        self.assertEqual(found["gpt2_medium-pytorch-blocks"], "FAILED with exit status 1: no GPU to be found")
        self.assertRegex(found["gpt2_large-max-autotune"], r"^done in .* tokens/s$", summary)

    def test_a_suite_that_crashes_costs_only_itself(self):
        self.replace_tests("""
            case $* in
              *list_tests*) printf '%s.\\n  Test/cpu  # GetParam() = cpu\\n' Devices/HeadsOn OnDevices/VerdictTest Devices/AdamWTest ;;
              *Verdict*) echo '[ RUN      ] OnDevices/VerdictTest.Test/cpu'; kill -SEGV $$ ;;
              *Heads*) printf '[  SKIPPED ] %s\\n' 'Devices/HeadsOn.Test/cpu (0 ms)' '1 test, listed below:' Devices/HeadsOn.Test/cpu ;;
              *) echo '[       OK ] A.B/cpu (1 ms)'
                 printf '[  FAILED  ] %s\\n' 'A.C/cpu, where GetParam() = cpu (2 ms)' '1 test, listed below:' 'A.C/cpu'
                 exit 1 ;;
            esac""")
        done = self.measure("cpu", "all", parts="^unit-tests$")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex((self.out / "summary.txt").read_text(), r"(?m)^unit tests of 3 suites in \d+ s: 1 passed, 1 skipped, 1 failed: "
                         r"A\.C/cpu; CRASHED or STOPPED: OnDevices/VerdictTest\.Test/cpu$")

    def test_unknown_words_are_refused_in_one_line(self):
        self.assertEqual(self.measure("gpu").stdout, "error: unknown device 'gpu': the second word is cuda or cpu\n")
        done = self.measure("cpu", "everything")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"^error: unknown command 'everything': the third word is one of all sizes tests [^\n]*\n$")
        self.assertFalse(self.out.exists())


class SanitizeGpu(Rehearsal):
    def sanitize(self, output):
        """Its exit status and what it says of a suite's memcheck where the tool printed this, and no error for others."""
        self.replace_tests("printf '%s.\\n  Test/cuda\\n' Devices/AdamWTest Devices/HeadsTest Devices/TrainTest")
        (self.root / "output").write_text(textwrap.dedent(output))
        self.write_program(self.root / "tools/compute-sanitizer", """
            case $* in
              *memcheck*AdamW*) cat output ;;
              *racecheck*) echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' ;;
              *) echo '========= ERROR SUMMARY: 0 errors' ;;
            esac""")
        done = self.run_script("scripts/sanitize_gpu.sh", self.out, PATH=f"{self.root}/tools:{os.environ['PATH']}")
        found = dict(re.findall(r"(?m)^(\w+ +Devices/\w+) +(.*), in \d+ s; tests: ", (self.out / "summary.txt").read_text()))
        self.assertEqual(len(found), 8, done.stdout)  # four tools and two suites with kernels
        lines = {re.sub(" +", " ", name): line for name, line in found.items()}
        first = lines.pop("memcheck Devices/AdamWTest")
        self.assertEqual(set(lines.values()), {"no error"}, done.stdout)
        return done.returncode, first

    def test_an_error_in_a_kernel_of_our_own_is_found(self):
        self.assertEqual(self.sanitize("""\
            ========= Invalid __global__ read of size 4 bytes
            =========     at void gpt::ops::cuda::adamw_kernel<float>(T1)+0x50
            =========     by thread (0,0,0) in block (0,0,0)
            ========= Uninitialized __global__ memory read of size 4 bytes
            =========     at void at::native::reduce_kernel<gpt::Sum>(T1)+0x10
            ========= ERROR SUMMARY: 2 errors"""),
            (1, "ERRORS: 1, the first: Invalid __global__ read of size 4 bytes at void gpt::ops::cuda::adamw_kernel<float>(T1)+0x50, "
                "1 in LibTorch"))

    def test_a_race_in_a_kernel_of_our_own_is_found(self):
        code, line = self.sanitize("""\
            ========= Error: Race reported between Write access at void gpt::ops::cuda::adamw_kernel<float>(T1)+0x20
            =========     and Read access at void gpt::ops::cuda::adamw_kernel<float>(T1)+0x40 [32 hazards]
            ========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)""")
        self.assertEqual(code, 1)
        self.assertRegex(line, r"^ERRORS: 1, the first: Error: Race reported between Write access at void gpt::ops::cuda::[^,]*$")

    def test_an_error_in_libtorch_is_counted_apart(self):
        self.assertEqual(self.sanitize("""\
            ========= Uninitialized __global__ memory read of size 4 bytes
            =========     at void at::native::reduce_kernel<float>(T1)+0x10
            ========= ERROR SUMMARY: 1 error"""), (0, "no error, 1 in LibTorch"))

    def test_a_tool_that_did_not_end_has_not_found_that_there_are_no_errors(self):
        self.assertEqual(self.sanitize("[ RUN      ] Devices/AdamWTest.Test/cuda"), (1, "no error, NOT ENDED"))


class KernelsGpu(Rehearsal):
    HEAD = ["==PROF== Connected to process 7",
            '"ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum",'
            '"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"',
            '"","","byte","byte","ns","%"']
    JUDGE = "gpt::ops::cuda::judge_kernel(gpt::ops::VerdictScalars)"

    def table(self, *launches, figures=()):
        """launches: name, bytes read and written, ns, percent"""
        path = self.root / "kernels.csv"
        rows = [",".join(f'"{value}"' for value in (i, *launch)) for i, launch in enumerate(launches)]
        path.write_text("\n".join(self.HEAD + rows) + "\n")
        return self.run_script("python3", "-B", "scripts/kernels_gpu.py", path, *figures)

    def test_the_launches_of_one_update_are_summed_by_kernel(self):
        norm = "void gpt::ops::cuda::add_norm_kernel<float, (int){}>(gpt::ops::cuda::AddNormRows<T1>)"
        fill = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, 1>>(int, T2)"
        done = self.table(("of the update before", "1", "1", "1", "0"), (self.JUDGE, "0", "0", "1,000,000", "0"),
                          (norm.format(1), "1,000,000,000", "500,000,000", "1,000,000.5", "0"),
                          (fill, "0", "2,000,000,000", "1,000,000", "0"), ("nvjet_sm90_TNT", "0", "0", "4,000,000", "80"),
                          (norm.format(2), "3,000,000,000", "1,500,000,000", "3,000,000", "0"),
                          (self.JUDGE, "0", "0", "9", "0"), (norm.format(1), "7", "7", "7", "0"))
        self.assertEqual(done.stdout.splitlines()[2:], [
            "| add_norm_kernel | 2 | 4.000 | 4.00 | 2.00 | 1.50 | 0 % | 40.0 % |",
            "| nvjet_sm90_TNT | 1 | 4.000 | 0.00 | 0.00 | 0.00 | 80 % | 40.0 % |",
            "| judge_kernel | 1 | 1.000 | 0.00 | 0.00 | 0.00 | 0 % | 10.0 % |",
            "| vectorized_elementwise_kernel FillFunctor | 1 | 1.000 | 0.00 | 2.00 | 2.00 | 0 % | 10.0 % |",
            "| in all | 5 | 10.000 | 4.00 | 4.00 | 0.80 | 32 % | 100.0 % |"])

    def test_each_part_of_the_step_is_beside_its_prediction(self):
        def launch(name, ms=1):
            return name, "1,000,000,000", "1,000,000,000", f"{1_000_000 * ms:,}", "50"
        head = [launch("nvjet_rows"), launch("void gpt::ops::cuda::cross_entropy_kernel<float>(T1)"), launch("nvjet_back")]
        step = [launch("nvjet_forward", 3), *head, *head, launch("nvjet_weight"), launch("nvjet_backward", 2), launch("nvjet_backward", 4),
                launch("cudnn_generated_fort_native_sdpa_bprop_cutlass_kernel"), launch("void at::native::CatArrayBatchedCopy(T1)")]
        done = self.table((self.JUDGE, "0", "0", "1,000", "0"), *step, (self.JUDGE, "0", "0", "9", "0"),
                          figures=[programs.SOURCE / "tests/figures/gpu_kernels.json"])
        lines = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in done.stdout.split("\n\n")[0].splitlines()[2:]}
        self.assertEqual(lines["the blocks' products, forward, with their biases"], ["1", "3.00", "16.95", "0.67", "50 % |"])
        self.assertEqual(lines["the blocks' products, backward"][:3], ["2", "6.00", "35.64"])
        self.assertEqual(lines["the head's products, forward and backward"][:3], ["5", "5.00", "22.27"])
        self.assertEqual(lines["cross entropy"][:3], ["2", "2.00", "6.16"])
        self.assertEqual(lines["attention, backward (cuDNN)"][:2], ["1", "1.00"])
        self.assertEqual(lines["embedding, batch and scalars"][:2], ["1", "1.00"])
        self.assertEqual(lines["in all"][:2], ["13", "18.00"])
        whole = [(self.JUDGE, "0", "0", "1,000", "0"), launch("at::native::fill"), (self.JUDGE, "0", "0", "9", "0")]
        self.assertRegex(self.table(*whole, figures=[programs.SOURCE / "tests/figures/gpu_kernels.json"]).stdout, "^no cross entropy [^\n]*\n$")

    def test_launches_without_a_whole_update_are_refused(self):
        self.assertRegex(self.table((self.JUDGE, "1", "1", "1", "1")).stdout, "^1 launches hold no whole update: [^\n]*\n$")
        self.assertRegex(self.table().stdout, r"kernels\.csv has no launches: ncu measured nothing\n$")


if __name__ == "__main__":
    unittest.main()
