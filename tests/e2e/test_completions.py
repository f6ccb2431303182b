"""Completions: bash completes what --help lists, by the script that each program writes; where there is zsh, it reads its script. Manual pages:
where there is groff, it reads them without a complaint."""

import functools
import re
import shutil
import subprocess
import unittest

from programs import run

PROGRAMS = ("gpt-train", "gpt-generate", "gpt-prepare", "gpt-export", "gpt-board", "gpt-diagnose")


@functools.cache
def script(program, shell="bash"):
    return run(program, "--print-completions", shell, check_code=0).stdout


@functools.cache
def flags_in_help(*command):
    """All flags of --help, in both forms: --output and -o."""
    shown = run(*command, "--help", check_code=0).stdout
    return {flag for names in re.findall(r"^  ((?:-\w, )*--[\w.-]+)", shown, re.M) for flag in names.split(", ")}


@functools.cache
def manual_page(program):
    return run(program, "--print-man-page", check_code=0).stdout


class Bash(unittest.TestCase):
    def complete(self, *words, of=None):
        """What bash would offer for the last word, split as its line editor splits a line."""
        program = words[0]
        source = of or script(program)
        ask = f'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _{program.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-us", "--", *words], input=f"{source}\n{ask}", capture_output=True, text=True, timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""), source)
        return done.stdout.split()

    def test_every_flag_of_help(self):
        for program in PROGRAMS:
            offered = self.complete(program, "-")
            self.assertEqual(set(offered), flags_in_help(program), program)
            self.assertGreater(len(offered), 7, program)

    def test_commands_of_gpt_bench_and_their_flags(self):
        source = script("gpt-bench")
        commands = self.complete("gpt-bench", "", of=source)
        self.assertIn("ladder", commands)
        self.assertEqual(self.complete("gpt-bench", "la", of=source), ["ladder"])
        for command in commands:
            offered = self.complete("gpt-bench", command, "-", of=source)
            self.assertEqual(set(offered), flags_in_help("gpt-bench", command), command)
        self.assertEqual(self.complete("gpt-bench", "modes", "--iter", of=source), ["--iterations"])
        self.assertEqual(self.complete("gpt-bench", "ladder", "--iter", of=source), [])
        self.assertEqual(script("gpt-bench"), run("gpt-bench", "ladder", "--print-completions", "bash", check_code=0).stdout)

    def test_values(self):
        source = script("gpt-train")
        for words, offered in {
            ("--compile_mode", ""): ["auto", "default", "reduce-overhead", "max-autotune"],
            ("--compile-mode", "r"): ["reduce-overhead"],
            ("--training.compile_mode", "=", "d"): ["default"],
            ("--compile_mode", "="): ["auto", "default", "reduce-overhead", "max-autotune"],
            ("--use_amp", ""): ["true", "false"],
            ("--batch_size", "a"): ["auto"],
            ("--use_amp", "--eval-o"): ["--eval-only"],
            ("--data", ""): [],  # bash then offers the names of files
        }.items():
            self.assertEqual(self.complete("gpt-train", *words, of=source), offered, words)
        self.assertRegex(source, r"\ncomplete -o default -F _gpt_train gpt-train\n$")
        self.assertEqual(self.complete("gpt-export", "--dtype", "b"), ["bfloat16"])

    def test_dashes_and_underscores_are_alike_and_sections_may_be_written(self):
        source = script("gpt-train")
        self.assertEqual(self.complete("gpt-train", "--batch-si", of=source), ["--batch_size"])
        self.assertIn("--model.n_layer", self.complete("gpt-train", "--model.", of=source))
        self.assertEqual(self.complete("gpt-generate", "--num_s"), ["--num-samples"])

    def test_another_shell_is_refused(self):
        self.assertEqual(run("gpt-prepare", "--print-completions", "fish", check_code=2).stderr,
                         "error: --print-completions must be one of bash, zsh, got 'fish'\n")


@unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
class Zsh(unittest.TestCase):
    def test_scripts_are_read(self):
        for program in (*PROGRAMS, "gpt-bench"):
            source = script(program, "zsh")
            done = subprocess.run(["zsh", "-fn"], input=source, capture_output=True, text=True, timeout=600)
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)
            self.assertTrue(source.startswith(f"#compdef {program}\n"))


class ManualPages(unittest.TestCase):
    PROGRAMS = (*PROGRAMS, "gpt-eval", "gpt-serve", "gpt-prune", "gpt-bench")

    def test_they_have_every_flag_of_help(self):
        for program in self.PROGRAMS[:-1]:
            page = manual_page(program).replace("\\-", "-")
            for flag in flags_in_help(program):
                self.assertRegex(page, rf"(?m)^\.B (-\w, )*{flag}( |,|$)", program)
            self.assertRegex(page, rf'(?m)^\.SH "NAME"\n{program} \\?- \w.*[^.]$')
            self.assertIn('.SH "EXIT STATUS"', page)
        self.assertIn(".B ladder\n", manual_page("gpt-bench"))

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_shows_them(self):
        for program in self.PROGRAMS:
            page = manual_page(program)
            done = subprocess.run(["groff", "-man", "-Tutf8", "-Kutf8", "-ww", "-P-c"], input=page, capture_output=True, text=True, timeout=600)
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)
            shown = re.sub(r".\x08", "", done.stdout).replace("\u2010", "-")  # without what makes it bold
            self.assertIn("--version", shown)

    def test_a_page_of_the_documentation(self):
        shown = run("gpt-train", "--manual", "run", check_code=0).stdout
        self.assertEqual(shown, run("gpt-bench", "--manual=run", check_code=0).stdout)
        self.assertIn("\n## ", shown)
        self.assertIn("--manual must be one of", run("gpt-export", "--manual", "nothing", check_code=2).stderr)


if __name__ == "__main__":
    unittest.main()
