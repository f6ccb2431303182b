"""Set-up's decisions about a machine and its one-line errors, and the source checks: in a copy of the scripts, changing nothing here."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["GPT_SOURCE_DIR"])


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "a checkout")
        shutil.copytree(SOURCE / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("*.md"))
        for name in ("src", "include/gpt", "tests", "cmake", ".ci"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(SOURCE / ".ci/run", self.root / ".ci/run")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run_command(self, *command, **environment):
        # PIP_NO_INDEX: a broken check must not end in a download.
        return subprocess.run(command, cwd=self.root, env={**os.environ, "PIP_NO_INDEX": "1", **environment}, timeout=1200,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Machine(Scripts):
    def usable_gpus(self, driver, capabilities):
        smi = self.write("bin/nvidia-smi", f'#!/bin/sh\ncase $1 in *driver*) echo "{driver}" ;; *) echo "{capabilities}" ;; esac\n')
        smi.chmod(0o755)
        return self.run_command("bash", "-euo", "pipefail", "-c", "source scripts/steps.sh; source scripts/machine.sh; usable_gpus",
                                PATH=f"{smi.parent}:{os.environ['PATH']}").stdout

    def test_cards_become_architectures(self):
        self.assertEqual(self.usable_gpus("580.65.06", "9.0\n8.6\n9.0"), "86;90\n")

    def test_an_old_driver_is_named_with_the_needed_one(self):
        self.assertRegex(self.usable_gpus("550.54.14", "8.6"), r"^warning: NVIDIA driver 550.54.14 is too old.*install 580 or later.*\n$")

    def test_an_old_card_is_passed_over_and_a_usable_one_kept(self):
        self.assertRegex(self.usable_gpus("580.65.06", "6.1"), r"^warning: .*\(61\) is below the 75")
        self.assertEqual(self.usable_gpus("580.65.06", "6.1\n12.0"), "120\n")


class SetUp(Scripts):
    def error_of(self, *command, **environment):
        result = self.run_command(*command, **environment)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"^error: [^\n]*\n$")
        return result.stdout

    def test_unknown_argument(self):
        self.assertIn("'--gpu'; usage:", self.error_of("scripts/setup.sh", "--gpu"))

    def test_another_architecture(self):
        self.assertIn("Linux i686", self.error_of("setarch", "i686", "scripts/setup.sh"))

    def test_a_linked_folder_is_left_alone(self):
        (self.root / "elsewhere").mkdir()
        (self.root / ".deps").symlink_to("elsewhere")
        self.assertIn(".deps is a link to elsewhere", self.error_of("scripts/setup.sh"))
        self.assertEqual(list((self.root / "elsewhere").iterdir()), [])

    def test_missing_compiler(self):
        self.assertIn("no C++ compiler 'no-such-compiler': apt-get install g++", self.error_of("scripts/setup.sh", CXX="no-such-compiler"))

    def test_the_corpus_wants_set_up_first(self):
        self.assertIn("run ./scripts/setup.sh first", self.error_of("scripts/get_data.sh"))


class Test(Scripts):
    """test.sh around checks and a set-up that only say what they were asked for, and a ctest that says its arguments and fails."""

    def setUp(self):
        super().setUp()
        for name in ("check.sh", "setup.sh", "get_data.sh"):
            self.write(f"scripts/{name}", f'#!/bin/sh\necho "{name} $*"\n').chmod(0o755)
        self.write(".deps/venv/bin/ctest", '#!/bin/sh\necho "ctest $*"\nexit 8\n').chmod(0o755)
        self.write("build/Testing/Temporary/LastTest.log", "12 passed, 1 failed, 3 skipped\nskipped 3: there is no zsh\n")
        self.write("build/.ninja_log", "# ninja log v7\n0\t2000\t7\ttests/a_test.cpp.o\tc0\n")

    def lines(self, *arguments):
        done = self.run_command("scripts/test.sh", *arguments)
        self.assertEqual(done.returncode, 8, done.stdout)  # that of ctest, after all has been said
        return done.stdout.splitlines()

    def test_every_kind_runs_after_checks_and_set_up(self):
        self.assertEqual(self.lines(), [
            "check.sh --sources", "setup.sh --cuda --tests", "check.sh --format", "get_data.sh ",
            "ctest --test-dir build --output-on-failure --no-tests=error -j 2 -LE ^(attack)$", "unit tests: 12 passed, 1 failed",
            "built: tests in 2 seconds of a core", "left out: tests of the kinds attack; 3 since there is no zsh"])

    def test_kinds_can_be_left_out(self):
        self.assertIn("ctest --test-dir build --output-on-failure --no-tests=error -j 2 -LE ^(e2e|attack|fuzz)$ -R tokenizer",
                      self.lines("--skip-e2e", "--skip-attack", "--skip-fuzz", "-R", "tokenizer"))
        self.assertIn("setup.sh --cpu --tests", self.lines("--skip-unit", "--cpu", "--skip-bench"))

    def test_all_tests_are_run_when_asked(self):
        self.write(".deps/venv/bin/ctest", '#!/bin/sh\necho "ctest $* all: $GPT_ALL_TESTS"\nexit 8\n')
        self.assertEqual([line for line in self.lines("--all") if "ctest" in line or "left out" in line],
                         ["ctest --test-dir build --output-on-failure --no-tests=error -j 2 all: 1", "left out: 3 since there is no zsh"])

    def test_tests_are_repeated_in_another_order_each_time(self):
        self.write(".deps/venv/bin/ctest", """#!/bin/sh
echo "ctest $* in order $GTEST_SHUFFLE $GTEST_RANDOM_SEED $GPT_TEST_ORDER"
test $GPT_TEST_ORDER = 2
""")
        done = self.run_command("scripts/test.sh", "--repeat", "2", "--skip-attack", "-R", "tokenizer")
        options = "--test-dir build --output-on-failure --no-tests=error -j 2 -LE ^(attack)$ --schedule-random -R tokenizer"
        self.assertIn(f"Time 1 of 2\nctest {options} in order 1 1 1\nTime 2 of 2\nctest {options} in order 1 2 2\n"
                      "1 of 2 times every test passed\n", done.stdout)
        self.assertEqual(done.returncode, 1)
        done = self.run_command("scripts/test.sh", "--repeat", "often")
        self.assertEqual(done.stdout, "error: --repeat: 'often' is not a number of times, such as 10\n")

    def test_an_unknown_kind_is_refused_before_anything_runs(self):
        done = self.run_command("scripts/test.sh", "--skip-slow")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "error: there is no kind of tests 'slow': unit, e2e, attack, fuzz or bench\n")


class Install(Scripts):
    """install.sh around a set-up that does nothing and a cmake that copies what is in `build`."""

    def setUp(self):
        super().setUp()
        for name in ("setup.sh", "get_data.sh"):
            self.write(f"scripts/{name}", "#!/bin/sh\n").chmod(0o755)
        (self.root / ".deps/log").mkdir(parents=True)
        self.write(".deps/venv/bin/cmake", """#!/usr/bin/env bash
set -e
(cd build/tree && find . -type f) | while read -r file; do
  mkdir -p "$4/$(dirname "$file")" && cp "build/tree/$file" "$4/$file" && realpath -s "$4/$file"
done >build/install_manifest.txt
""").chmod(0o755)
        self.prefix = self.root / "a prefix"
        self.build({"bin/gpt-train": "1", "bin/gpt-old": "1", "lib/gpt-train/libgomp.so.1": "1", "share/gpt-train/configs/a.yaml": "1"})

    def build(self, files):
        shutil.rmtree(self.root / "build", ignore_errors=True)
        for name, text in files.items():
            self.write(f"build/tree/{name}", text)

    def install(self, *arguments):
        done = self.run_command("scripts/install.sh", *arguments, str(self.prefix))
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def files(self):
        return sorted(str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file())

    def test_what_was_installed_is_removed_and_nothing_else(self):
        self.install()
        self.assertIn("share/gpt-train/installed_files", self.files())
        (self.prefix / "bin/mine").write_text("")
        (self.prefix / "share/gpt-train/configs/a.yaml").write_text("changed")
        self.assertRegex(self.install("--remove"), r"Left in place, since they were changed: .*/a.yaml\n")
        self.assertEqual(self.files(), ["bin/mine", "share/gpt-train/configs/a.yaml"])
        self.assertFalse((self.prefix / "lib/gpt-train").exists())
        done = self.run_command("scripts/install.sh", "--remove", str(self.prefix))
        self.assertRegex(done.stdout, r"^error: .*installed_files is missing: [^\n]*\n$")

    def test_help_and_unknown_arguments(self):
        done = self.run_command("scripts/install.sh", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("\nusage: scripts/install.sh [--cpu|--cuda|--remove] [PREFIX]", done.stdout)
        self.assertNotIn("set -e", done.stdout)
        done = self.run_command("scripts/install.sh", "--hepl")
        self.assertEqual((done.returncode, done.stdout[:30]), (1, "error: unknown argument '--hep"))

    def test_an_update_keeps_the_kind_of_the_build(self):
        self.write("scripts/setup.sh", '#!/bin/sh\necho "setup.sh $*"\n').chmod(0o755)
        self.assertIn("setup.sh \n", self.install())
        for value, flag, other in (("OFF", "--cpu", "--cuda"), ("ON", "--cuda", "--cpu")):
            self.write("build/CMakeCache.txt", f"GPT_CUDA:BOOL={value}\n")
            self.assertIn(f"setup.sh {flag}\n", self.install())
            self.assertIn(f"setup.sh {other}\n", self.install(other))

    def test_an_update_replaces_what_the_older_version_installed(self):
        self.install()
        (self.prefix / "share/gpt-train/configs/a.yaml").write_text("changed")
        self.build({"bin/gpt-train": "2", "share/gpt-train/configs/a.yaml": "2"})
        self.assertRegex(self.install(), r"warning: .*/a.yaml was changed since it was installed: your file is now .*/a.yaml.old\n")
        self.assertEqual(self.files(), ["bin/gpt-train", "share/gpt-train/configs/a.yaml", "share/gpt-train/configs/a.yaml.old",
                                        "share/gpt-train/installed_files"])
        self.assertEqual((self.prefix / "bin/gpt-train").read_text(), "2")


class Steps(Scripts):
    def test_a_step_runs_again_only_with_other_inputs_or_after_a_failure(self):
        (self.root / ".deps/stamps").mkdir(parents=True)
        script = 'set -euo pipefail; source scripts/steps.sh; step it "$1" Title eval "$2"'
        def step(inputs, command):
            return self.run_command("bash", "-c", script, "bash", inputs, command).stdout
        self.assertRegex(step("a", "echo ran"), r"^Title \.\.\. ran\ndone in \d+ s\n$")
        self.assertEqual(step("a", "echo ran"), "")
        self.assertIn("ran", step("b", "echo ran"))
        self.assertEqual(step("c", "fail why"), "Title ... failed\nerror: why\n")
        self.assertIn("ran", step("b", "echo ran"))


class Checks(Scripts):
    def setUp(self):
        super().setUp()
        folders = ("train", "model", "ops", "core")
        for folder in folders:
            self.write(f"src/{folder}/begin.h", "")
        self.layout(*map(self.item, folders))
        self.write("OPTIMIZATIONS.md", "")

    def item(self, folder, more=""):
        return f"* [{folder}]({folder}): what is in it. Begin with\n  [`begin.h`]({folder}/begin.h){more}.\n"

    def layout(self, *items):
        self.write("src/README.md", f"## Layout of the code\n\n{''.join(items)}\n## Other\n\n* [no](folder): `no.h`\n")

    def found(self, scope="--sources", draws=True):
        if draws:
            self.run_command("scripts/draw_floors.py")
        result = self.run_command("scripts/check.sh", *scope.split())
        problems = re.sub("^clang-tidy on .* done in .*\n", "", result.stdout)
        self.assertEqual(result.returncode, 1 if problems else 0, result.stdout)
        return problems.replace("error: the source checks failed\n", "")


class SourceChecks(Checks):
    def test_clean_sources(self):
        self.write("src/model/gpt.cpp", '#include "gpt/model/gpt.h"\n#include "gpt/ops/rotary.h"\n')
        self.write("src/ops/a.cu", "f<<<1, 2>>>(a,\n   b);\nC10_CUDA_KERNEL_LAUNCH_CHECK();\n")
        self.assertEqual(self.found(), "")

    def test_include_upwards(self):
        self.write("src/ops/a.cpp", '#include <vector>\n#include "gpt/model/gpt.h"\n')
        self.assertEqual(self.found(), "src/ops/a.cpp:2: 'ops' includes 'model', which is not below it\n")

    def test_folder_without_a_place(self):
        self.write("src/misc/a.cpp", '#include "gpt/core/error.h"\n')
        self.assertEqual(self.found(), "src/misc/a.cpp:1: folder 'misc' is missing from the order of includes\n"
                         "src/README.md: the layout lacks the folder misc\n")

    def test_launch_without_check(self):
        self.write("src/ops/a.cu", "\nf<<<1, 2>>>(a,\n   b);\n\n\n\nC10_CUDA_KERNEL_LAUNCH_CHECK();\nf<<<1, 2>>>(a);\n")
        message = "kernel launch without C10_CUDA_KERNEL_LAUNCH_CHECK()\n"
        self.assertEqual(self.found(), f"src/ops/a.cu:2: {message}src/ops/a.cu:8: {message}")

    def test_a_type_that_is_defined_twice(self):
        self.write("src/core/a.h", "namespace gpt {\n\nstruct Documents {\n};\n\n}  // namespace gpt\n")
        self.write("src/ops/a.h", "namespace gpt::ops {\n\nstruct Documents {\n};\n\n}  // namespace gpt::ops\n")
        self.write("src/train/a.cpp", "namespace gpt::train {\nnamespace {\n\nclass Documents {\n};\n\n}  // namespace\n}  // namespace gpt::train\n")
        self.assertEqual(self.found(), "")
        self.write("src/core/b.h", "namespace gpt {\n\nclass Documents final : public Base {\n};\n\n}  // namespace gpt\n")
        self.assertEqual(self.found(), "src/core/b.h:3: gpt::Documents is defined at src/core/a.h:3 too: the linker takes one for both\n")

    def test_a_namespace_that_is_not_of_its_folder(self):
        self.write("src/core/a.h", "namespace gpt {\n\nint a();\n\n}  // namespace gpt\n")
        self.write("src/ops/a.h", "namespace gpt::model {\nclass A;\n}\n\nnamespace gpt::ops::cpu {\n\nint a();\n\n}  // namespace gpt::ops::cpu\n")
        self.write("src/train/utf8.h", "namespace gpt::utf8 {\n\nint a();\n\n}  // namespace gpt::utf8\n")
        self.assertEqual(self.found(), "")
        self.write("src/model/a.h", "// What it is.\nnamespace gpt {\n\nint b();\n\n}  // namespace gpt\n")
        self.assertEqual(self.found(), "src/model/a.h:2: is in gpt; a name in this folder is in gpt::model\n")

    def test_too_many_headers_with_the_whole_configuration(self):
        self.write("src/config/begin.h", "")
        self.layout(*map(self.item, ("train", "model", "ops", "config", "core")))
        self.write("src/config/config.h", "struct Config {\n};\n")
        for i in range(20):
            self.write(f"src/core/a{i}.h", "void f(const Config& config);\n")
        self.write("src/core/b.h", "void f(const UpdateConfig& config);  // no Config\n")
        self.write("src/core/b.cpp", "void f(const Config& config) {}\n")
        self.assertEqual(self.found(), "")
        self.write("src/core/b.h", "std::optional<Config> g();\n")
        self.assertRegex(self.found(), r"^21 headers outside config/ name the whole Config \(at most 20\); take the struct that is needed, "
                                       r"or UpdateConfig: src/core/a0.h .*src/core/b.h\n$")

    def test_long_file(self):
        self.write("src/core/a.cpp", "\n" * 500)
        self.assertEqual(self.found(), "")
        self.write("src/core/a.cpp", "\n" * 501)
        self.assertEqual(self.found(), "src/core/a.cpp:501: has 501 lines; split it (at most 500)\n")

    def test_script_syntax(self):
        self.write("scripts/broken.sh", "if\n")
        self.assertIn("scripts/broken.sh: line 2: syntax error", self.found())

    def test_layout_of_another_tree(self):
        self.write("include/gpt/model/gpt.h", "")
        self.layout(self.item("train"), self.item("ops"), self.item("model", ", then `gpt.h` and\n  `lock.h`"), self.item("misc"),
                    "* [core](core): see [`lock.h`](core/lock.h)\n")
        self.assertEqual(self.found(), "src/README.md: the layout names model/lock.h, which does not exist\n"
                                       "src/README.md: the layout names misc, which does not exist\n"
                                       "src/README.md: the layout does not link the file of core to begin with\n"
                                       "src/README.md: the layout links core/lock.h, which does not exist\n"
                                       "src/README.md: the layout names core/lock.h, which does not exist\n"
                                       "src/README.md: the folders of the layout are not in the order of includes\n")

    def test_file_that_is_only_in_the_text(self):
        self.write("OPTIMIZATIONS.md", "\nsee `src/ops/a.cpp` and `scripts/*.sh`\n")
        self.assertEqual(self.found(), "OPTIMIZATIONS.md:2: names src/ops/a.cpp, which does not exist\n")
        self.write("OPTIMIZATIONS.md", "")
        self.write("src/ops/README.md", "`scripts/check.sh`, `tests/ops/a_test.cpp`\n")
        self.assertEqual(self.found(), "src/ops/README.md:1: names tests/ops/a_test.cpp, which does not exist\n")

    def test_size_that_is_no_longer_right(self):
        self.write("src/ops/a.cpp", "\n" * 90)
        self.write("src/ops/b.cpp", "\n" * 89)
        self.write("OPTIMIZATIONS.md", "`src/ops/a.cpp` (99 lines), `src/ops/b.cpp` (99).\n")
        self.assertEqual(self.found(), "OPTIMIZATIONS.md: src/ops/b.cpp has 89 lines, not 99\n")

    def test_record_that_is_too_long(self):
        parts = "".join(f"* {part}: some\n" for part in ("Idea", "Files", "Memory", "Loss", "Verdict"))
        record = f"## OPT-1 Title\n\n{parts}" + "\nmore\n" * 9
        self.write("OPTIMIZATIONS.md", f"{record}\n## Other\n{'text ' * 30}\n" + "\n" * 30)
        self.assertEqual(self.found(), "")
        self.write("OPTIMIZATIONS.md", f"{record}\n{'x' * 141}\n")
        self.assertEqual(self.found(), "OPTIMIZATIONS.md:27: has 141 columns; break the line (at most 140)\n"
                                       "OPTIMIZATIONS.md:1: OPT-1 has 27 lines; shorten it (at most 25)\n")
        self.write("OPTIMIZATIONS.md", "x\n" * 30721)
        self.assertEqual(self.found(), "OPTIMIZATIONS.md: has 61442 bytes; shorten it (at most 61440)\n")

    def test_missing_tools(self):
        self.assertRegex(self.found(""), r"^clang-format and clang-tidy are missing: run ./scripts/setup.sh --tests, .*\n$")


class Picture(Checks):
    OLD = "src/floors.svg: is not what the includes say; this draws it anew: scripts/draw_floors.py\n"

    def drawn(self):
        """The boxes, each with the folders further down that it names and how many include it; and how many arrows there are."""
        self.assertEqual(self.run_command("scripts/draw_floors.py").stdout, "")
        picture = (self.root / "src/floors.svg").read_text()
        boxes = re.findall(r'<tspan class="name">(\w+)</tspan>(?:<tspan .*?>↓ (.*?)</tspan>)?</text>(?:\n *<text .*?>(\d+)</text>)?', picture)
        return {name: (below, users) for name, below, users in boxes if below or users}, picture.count('class="arrow"')

    def test_shows_the_includes_that_no_others_lead_to(self):
        self.assertEqual(self.drawn(), ({}, 0))
        self.write("src/train/a.cpp", '#include "gpt/model/gpt.h"\n#include "gpt/core/error.h"\n#include "a.h"\n#include "train/b.h"\n')
        self.write("include/gpt/model/gpt.h", '#include "gpt/ops/norm.h"\n')
        self.write("src/ops/cpu/norm.cpp", '#include "core/error.h"\n#include "ops/norm.h"\n#include "products/product.h"\n')
        self.assertEqual(self.drawn(), ({"train": ("model", ""), "model": ("ops", "1"), "ops": ("core", "1"), "products": ("", "1"),
                                         "core": ("", "2")}, 1))

    def test_is_found_where_it_is_missing_or_old(self):
        self.assertEqual(self.found(draws=False), self.OLD)
        self.assertEqual(self.found(), "")
        self.write("src/model/a.cpp", '#include "gpt/ops/norm.h"\n')
        self.assertEqual(self.found(draws=False), self.OLD)
        self.assertEqual(self.found(), "")


class Figures(Checks):
    """Tables of OPTIMIZATIONS.md and README.md that scripts/figures.py makes of tests/figures/*.json."""
    TEXT = "before\n<!-- figures: speed -->\n{}<!-- end of figures -->\nbehind\n"

    def setUp(self):
        super().setUp()
        self.write("src/ops/gelu_kernel.cpp", '#include "a.h"\nint a;\n')
        self.write("OPTIMIZATIONS.md", self.TEXT.format(""))
        self.figures(None)

    def figures(self, code, gain=1.3, patterns=("src/**/gelu*",)):
        measured = {"commit": "1234567", "date": "2026-11-25", "code": code, "machine": {"cpu": "a CPU", "instruction_sets": "AVX2"}, "rounds": 3,
                    "rows": [["GELU", 40300, gain], ["none", None, None]]}
        columns = ["operator", {"name": "tokens/s", "unit": "k"}, {"name": "gain", "digits": 2, "unit": "x"}]
        self.write("tests/figures/speed.json", json.dumps({"title": "Speed", "command": "x --y", "threads": 1, "measures": patterns,
                                                           "columns": columns, "measurements": [measured]}))

    def run_figures(self, *arguments):
        return self.run_command("scripts/figures.py", *arguments)

    def table(self, age, gain="1.30x"):
        return (f"Speed: `x --y`, 1 thread, a CPU, AVX2, 3 rounds, commit 1234567 of 2026-11-25.{age}\n\n"
                f"| operator | tokens/s | gain |\n| --- | ---: | ---: |\n| GELU | 40.3k | {gain} |\n| none | | |\n")

    def written(self):
        self.assertEqual(self.run_figures("--write").stdout, "")
        self.assertEqual(self.found(), "")
        return (self.root / "OPTIMIZATIONS.md").read_text()

    def test_the_table_is_written_and_what_differs_from_it_is_found(self):
        self.assertEqual(self.written(), self.TEXT.format(self.table(" The measured code may have changed since.")))
        self.figures(None, gain=1.4)
        self.assertEqual(self.found(), "OPTIMIZATIONS.md:7: is not what tests/figures/speed.json says; this writes the tables anew: "
                                       "scripts/figures.py --write\n")
        self.assertIn("1.40x", self.written())

    def test_a_table_says_that_its_code_has_changed_but_not_that_it_has_moved(self):
        code = self.run_command("python3", "-c", "import sys; sys.path.insert(0, 'scripts'); import figures; "
                                "print(figures.measured_code(['src/**/gelu*']))").stdout.strip()
        self.figures(code)
        self.assertEqual(self.written(), self.TEXT.format(self.table("")))
        (self.root / "src/ops/gelu_kernel.cpp").unlink()
        self.write("src/ops/cpu/gelu_kernel.cpp", '#include "ops/cpu/a.h"\nint a;\n')
        self.assertEqual(self.found(), "")
        self.write("src/ops/cpu/gelu_kernel.cpp", "int b;\n")
        self.assertIn("OPTIMIZATIONS.md:3: is not what tests/figures/speed.json says", self.found())
        self.assertEqual(self.written(), self.TEXT.format(self.table(" The measured code has changed since.")))

    def test_a_table_of_several_commits_says_which_are_of_older_code(self):
        now = self.run_command("python3", "-c", "import sys; sys.path.insert(0, 'scripts'); import figures; "
                               "print(figures.measured_code(['src/**/gelu*']))").stdout.strip()
        self.figures(None)
        figures = json.loads((self.root / "tests/figures/speed.json").read_text())
        measured = figures["measurements"][0]
        for codes, said in (((now, now), ""), ((None, None), " The measured code may have changed since."),
                            ((now, None), " The measured code may have changed since, but for that of commit0."),
                            (("0", now, None, "1"), " The measured code has changed since, but for that of commit1. "
                             "Whether that of commit2 has is not known.")):
            figures["measurements"] = [{**measured, "label": f"row {i}", "commit": f"commit{i}", "code": code} for i, code in enumerate(codes)]
            self.write("tests/figures/speed.json", json.dumps(figures))
            caption = " ".join(self.written().split("-->\n")[1].split("\n\n")[0].split("\n"))
            self.assertTrue(caption.endswith(f"commit{len(codes) - 1} of 2026-11-25.{said}"), caption)

    def test_what_cannot_be_a_table_is_named(self):
        self.figures(None, patterns=["src/**/tanh*"])
        self.assertEqual(self.found(), "tests/figures/speed.json: no file matches src/**/tanh*, whose code is measured\n")
        self.write("tests/figures/speed.json", '{"title": "Speed"}')
        self.assertEqual(self.found(), "tests/figures/speed.json: is not as tests/figures/README.md says: KeyError: 'measurements'\n")
        (self.root / "tests/figures/speed.json").unlink()
        self.assertEqual(self.found(), "tests/figures/speed.json: the file does not exist\n")
        self.write("OPTIMIZATIONS.md", "\n<!-- figures: speed -->\n")
        self.assertEqual(self.found(), "OPTIMIZATIONS.md:2: the figures of speed have no end\n")


class FormatAndTidy(Checks):
    MISTAKE = "int* {}() {{ return 0; }}\n"

    def setUp(self):
        super().setUp()
        for name in (".clang-format", ".clang-tidy"):
            shutil.copy(SOURCE / name, self.root)
        for tool in ("clang-format", "clang-tidy"):
            self.write(f".deps/venv/bin/{tool}", "").unlink()
            (self.root / ".deps/venv/bin" / tool).symlink_to(SOURCE / ".deps/venv/bin" / tool)
        old = self.write("src/core/old.cpp", self.MISTAKE.format("old"))
        command = {"directory": str(self.root), "command": f"c++ -Wno-restrict -c '{old}'", "file": str(old)}
        self.write("build/compile_commands.json", json.dumps([command], indent=2))
        self.write(".gitignore", "/.deps\n/build\n")
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "Old"], ["commit", "-qm", "Last", "--allow-empty"]):
            self.git(*arguments)

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=self.root, check=True)

    def test_what_is_not_formatted_is_named_once_with_what_mends_it(self):
        self.write("src/core/a.h", "inline int a() { return  1; }\ninline int b() { return  1; }\n")
        problem, mend = self.found("").strip().split("; this mends it: ")
        self.assertEqual(problem, "src/core/a.h:1: is not formatted")
        subprocess.run(mend.split(), cwd=self.root, check=True)
        self.assertEqual(self.found(""), "")

    def test_tidy_sees_what_changed(self):
        self.write("src/core/a.cpp", '#include "a_header.h"\n')
        self.write("src/core/b.cpp", self.MISTAKE.format("b"))
        self.git("add", "src/core/a.cpp")
        self.write("src/core/a_header.h", self.MISTAKE.format("header"))
        finding = "warning: use nullptr [modernize-use-nullptr]\n"
        changed = f"src/core/a_header.h:1:24: {finding}src/core/b.cpp:1:19: {finding}"
        self.assertEqual(self.found(""), changed)

    def test_tidy_sees_everything_when_asked(self):
        self.assertEqual(self.found("--all"), "src/core/old.cpp:1:21: warning: use nullptr [modernize-use-nullptr]\n")
        self.assertEqual(self.found(""), "")


if __name__ == "__main__":
    unittest.main()
