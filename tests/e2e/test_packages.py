"""Packages: what scripts/package.py packs and refuses, and what the programs of a package say. The trees are small; the packages of a
real build are tried by scripts/try_packages.sh."""

import base64
import csv
import hashlib
import importlib.util
import io
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

import programs

PACKER = programs.SOURCE / "scripts/package.py"
specification = importlib.util.spec_from_file_location("package", PACKER)
package = importlib.util.module_from_spec(specification)
specification.loader.exec_module(package)
SECONDS = 1_700_000_000


def compile_elf(target, *arguments, source="int main() { return 0; }"):
    target.parent.mkdir(parents=True, exist_ok=True)
    compiler = [os.environ.get("CXX", "c++"), "-x", "c++", "-", "-x", "none", "-o", target]
    subprocess.run([*compiler, *arguments], input=source, text=True, check=True)


def library(path, *arguments):
    compile_elf(path, "-shared", f"-Wl,-soname,{path.name}", *arguments, source="void nothing() {}")


def link_flags(paths, *libraries, tags="--disable-new-dtags"):
    return ["-Wl,--no-as-needed", f"-Wl,{tags},-rpath,{':'.join(paths)}", *map(str, libraries)]


class Packing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpt-packages-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree = self.folder / "tree"
        libraries = [self.tree / "lib/gpt-train" / name for name in ("libgomp.so.1", "libtorch_cpu.so")]
        for path in libraries:
            library(path)
        compile_elf(self.tree / "bin/gpt-train", *link_flags(package.required_paths(), *libraries))
        for name in ("configs/a.yaml", "data/shakespeare.txt", "data/gpt2/encoder.json", "data/gpt2/vocab.bpe", "licenses/some.txt"):
            self.add(f"share/gpt-train/{name}", f"{name}\n" * 1000)

    def add(self, name, text):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def pack(self, kind):
        """The package, and the same once more."""
        made = []
        for folder in ("first", "second"):
            done = subprocess.run([sys.executable, "-B", PACKER, kind, self.tree, self.folder / folder, "1.2", str(SECONDS)],
                                  capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stderr)
            made += (self.folder / folder).iterdir()
            for path in self.tree.rglob("*"):
                os.utime(path)  # a tree that was installed again
        return made

    def refusal(self, kind="archive"):
        done = subprocess.run([sys.executable, "-B", PACKER, kind, self.tree, self.folder / "refused", "1.2", str(SECONDS)],
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"^error: [^\n]*\n$")
        self.assertFalse((self.folder / "refused").exists())
        return done.stderr

    def test_an_archive_holds_the_tree_and_its_bytes_do_not_vary(self):
        first, second = self.pack("archive")
        self.assertEqual(first.name, "gpt-train-1.2-linux-x86_64.tar.gz")
        self.assertEqual(first.read_bytes(), second.read_bytes())
        with tarfile.open(first) as tar:
            members = {member.name.removeprefix("gpt-train-1.2/"): member for member in tar}
            for path in self.tree.rglob("*"):
                if path.is_file():
                    self.assertEqual(tar.extractfile(members.pop(str(path.relative_to(self.tree)))).read(), path.read_bytes())
            self.assertEqual(tar.extractfile(members.pop("share/gpt-train/package")).read(), b"archive\n")
            self.assertIn("bin/gpt-train --config configs/", tar.extractfile(members.pop("README.txt")).read().decode())
            self.assertEqual(members.pop("configs").linkname, "share/gpt-train/configs")
            self.assertEqual(members, {})
            self.assertEqual({(member.uid, member.gid, member.uname, member.mtime) for member in tar}, {(0, 0, "", SECONDS)})
            self.assertEqual(tar.getmember("gpt-train-1.2/bin/gpt-train").mode, 0o755)
            self.assertEqual(tar.getmember("gpt-train-1.2/README.txt").mode, 0o644)

    def test_a_wheel_has_a_right_record_and_leaves_libtorch_to_torch(self):
        first, second = self.pack("wheel")
        self.assertRegex(first.name, r"^gpt_train-1\.2-py3-none-manylinux_2_\d+_x86_64\.whl$")
        self.assertEqual(first.read_bytes(), second.read_bytes())
        with zipfile.ZipFile(first) as wheel:
            record = {row[0]: row[1:] for row in csv.reader(io.StringIO(wheel.read("gpt_train-1.2.dist-info/RECORD").decode()))}
            self.assertEqual(record.pop("gpt_train-1.2.dist-info/RECORD"), ["", ""])
            self.assertEqual(list(record) + ["gpt_train-1.2.dist-info/RECORD"], wheel.namelist())
            for name, (digest, size) in record.items():
                data = wheel.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
                self.assertEqual((digest, size), (f"sha256={expected}", str(len(data))), name)
            self.assertEqual([name for name in record if "libtorch" in name], [])
            self.assertIn("gpt_train-1.2.data/scripts/gpt-train", record)
            metadata = wheel.read("gpt_train-1.2.dist-info/METADATA").decode()
            self.assertIn("\nRequires-Dist: torch==2.11.0\nDescription-Content-Type", metadata)
            self.assertIn("\nRequires-Python: >=3.10,<3.15\n", metadata)
            self.assertEqual({info.date_time for info in wheel.infolist()}, {(2023, 11, 14, 22, 13, 20)})

    def test_pip_installs_a_wheel(self):
        wheel = self.pack("wheel")[0]
        prefix = self.folder / "prefix"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed",
                        "--disable-pip-version-check", "--no-warn-script-location", "--prefix", prefix, wheel], check=True, timeout=600)
        program = prefix / "bin/gpt-train"
        self.assertEqual(program.read_bytes(), (self.tree / "bin/gpt-train").read_bytes())
        self.assertTrue(program.stat().st_mode & stat.S_IXUSR)
        for name in ("lib/gpt-train/libgomp.so.1", "share/gpt-train/package", "share/gpt-train/configs/a.yaml"):
            self.assertTrue((prefix / name).is_file(), name)

    def test_what_would_not_run_elsewhere_is_refused(self):
        program = self.tree / "bin/gpt-export"
        compile_elf(program, *link_flags(package.required_paths(), tags="--enable-new-dtags"))
        self.assertIn("gpt-export has no RPATH of its own, or a RUNPATH", self.refusal())
        compile_elf(program, *link_flags([*package.required_paths(), "/opt/torch/lib"]))
        self.assertIn("gpt-export does not look for libraries where a package has them", self.refusal("wheel"))
        library(self.folder / "libother.so.7")
        compile_elf(program, *link_flags(package.required_paths(), self.folder / "libother.so.7"))
        self.assertIn("gpt-export needs libother.so.7, which neither the package", self.refusal())

    def test_a_package_without_its_data_is_refused(self):
        shutil.rmtree(self.tree / "share/gpt-train/licenses")
        self.assertIn("lacks share/gpt-train/licenses", self.refusal())

    def test_only_a_wheel_leaves_libtorch_out(self):
        (self.tree / "lib/gpt-train/libtorch_cpu.so").unlink()
        self.assertIn("gpt-train needs libtorch_cpu.so", self.refusal("archive"))
        self.pack("wheel")

    def test_a_build_that_is_not_for_packages_is_refused(self):
        (self.folder / "CMakeCache.txt").write_text("GPT_RELOCATABLE:BOOL=OFF\nGPT_CUDA:BOOL=OFF\n")
        done = subprocess.run([programs.SOURCE / "scripts/package.sh", "wheel", "--build", "."], cwd=self.folder, capture_output=True,
                              text=True, timeout=600)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn(f"error: {self.folder} is no build for packages: configure it with", done.stderr)


class Systems(unittest.TestCase):
    def test_tags_promise_what_is_needed(self):  # as auditwheel 6 has them
        for needed, tag in {("2.9", "3.4.9", "1.3.9"): 34, ("2.34", "3.4.29", "1.3.13"): 34, ("2.34", "3.4.30", "1.3.13"): 35,
                            ("2.35", "3.4.30", "1.3.11"): 35, ("2.38", "3.4.30", "1.3.13"): 38, ("2.38", "3.4.32", "1.3.13"): 39,
                            ("2.34", "3.4.29", "1.3.15"): 39}.items():
            self.assertEqual(package.platform_tag(needed), f"manylinux_2_{tag}_x86_64", needed)

    def test_systems_are_those_that_have_what_is_needed(self):
        self.assertIn("as Ubuntu 22.04, Debian 12, Ubuntu 24.04,", package.requirements(("2.34", "3.4.30", "1.3.13")))
        self.assertIn("as Ubuntu 24.04, Debian 13 ", package.requirements(("2.38", "3.4.30", "1.3.13")))

    def test_versions_are_compared_as_numbers(self):
        class One:
            versions = {"GLIBC": ["2.9", "2.34", "2.4"], "GLIBCXX": ["3.4.9", "3.4.30"], "CXXABI": ["1.3.9", "1.3.13"]}
        self.assertEqual(package.needs({"program": One()}), ("2.34", "3.4.30", "1.3.13"))


class Installed(unittest.TestCase):
    """A program that was installed, so that share/gpt-train is beside it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpt-installed-")
        self.addCleanup(folder.cleanup)
        self.prefix = pathlib.Path(folder.name, "prefix")
        (self.prefix / "bin").mkdir(parents=True)
        (self.prefix / "share/gpt-train").mkdir(parents=True)
        (self.prefix / "lib").symlink_to(programs.BIN.parent / "lib")
        shutil.copy(programs.BIN / "gpt-prepare", self.prefix / "bin")
        shutil.copy(programs.BIN / "gpt-train", self.prefix / "bin")
        (self.prefix / "text.txt").write_text("some text\n")

    def run_installed(self, program, *words):
        return subprocess.run([self.prefix / "bin" / program, *words], cwd=self.prefix, capture_output=True, text=True, timeout=600)

    def test_advice_is_for_the_way_in_which_it_came(self):
        for kind, advice in (("", "run ./scripts/get_data.sh in the checkout"), ("archive", "unpack the archive of gpt-train again"),
                             ("wheel", "run pip install --force-reinstall --no-deps with gpt-train's wheel")):
            marker = self.prefix / "share/gpt-train/package"
            if kind:
                marker.write_text(kind + "\n")
            done = self.run_installed("gpt-prepare", "--input", "text.txt", "--tokenizer", "gpt2", "--output", "out")
            self.assertEqual(done.stderr, f"error: GPT-2's vocabulary (data/gpt2/encoder.json) is not installed; {advice}, or use another "
                                          "tokenizer\n")

    def test_installed_configurations_are_found_from_everywhere(self):
        (self.prefix / "share/gpt-train/configs").mkdir()
        (self.prefix / "share/gpt-train/configs/mine.yaml").write_text("threads: 3\n")
        shown = self.run_installed("gpt-train", "--config", "configs/mine.yaml", "--print-config")
        self.assertIn("\nthreads: 3", shown.stdout, shown.stderr)
        (self.prefix / "configs").mkdir()
        (self.prefix / "configs/mine.yaml").write_text("threads: 5\n")  # one in the working directory goes first
        self.assertIn("\nthreads: 5", self.run_installed("gpt-train", "--config", "configs/mine.yaml", "--print-config").stdout)
        missing = self.run_installed("gpt-train", "--config", "configs/other.yaml", "--print-config")
        self.assertRegex(missing.stderr, r"^error: cannot read configs/other\.yaml: ")


if __name__ == "__main__":
    unittest.main()
