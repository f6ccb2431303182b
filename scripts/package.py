#!/usr/bin/env python3
"""Packs an installed tree, as scripts/package.sh does: an archive that brings LibTorch along, or a wheel that uses an installed torch.

usage: package.py archive|wheel TREE FOLDER VERSION SECONDS
TREE is what `cmake --install` made of a build with GPT_RELOCATABLE; SECONDS since 1970 are the time of every file in the package. What
would not run elsewhere is refused: a library that nothing brings, or a path of this machine.
"""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time
import zipfile

TORCH = re.search(r"^torch==(\S+)", (pathlib.Path(__file__).parent / "requirements/cpu.txt").read_text(), re.M)[1]
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]  # those that have wheels of this torch
FROM_TORCH = re.compile(r"lib(torch_cpu|c10|cudart|cupti)\.so(\.\d+)*")  # what a wheel leaves to torch and to what torch requires
FROM_SYSTEM = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
               "libutil.so.1", "ld-linux-x86-64.so.2"}
# Versions of glibc, libstdc++ and its ABI in systems, the oldest first.
SYSTEMS = {"RHEL 9": ("2.34", "3.4.29", "1.3.13"), "Ubuntu 22.04": ("2.35", "3.4.30", "1.3.13"), "Debian 12": ("2.36", "3.4.30", "1.3.13"),
           "Ubuntu 24.04": ("2.39", "3.4.33", "1.3.15"), "Debian 13": ("2.41", "3.4.33", "1.3.15")}
# The same for the tags of wheels. A tag names the oldest glibc, and each promises a libstdc++ of about the same age.
MANYLINUX = {34: ("2.34", "3.4.29", "1.3.13"), 35: ("2.35", "3.4.30", "1.3.13"), 36: ("2.36", "3.4.30", "1.3.13"),
             37: ("2.37", "3.4.30", "1.3.13"), 38: ("2.38", "3.4.30", "1.3.13"), 39: ("2.39", "3.4.33", "1.3.15"),
             40: ("2.40", "3.4.33", "1.3.15"), 41: ("2.41", "3.4.33", "1.3.15")}
SUMMARY = "Trains GPT models from scratch, on CPUs"


def fail(message):
    sys.exit(f"error: {message}")


def number(version):
    return tuple(map(int, version.split(".")))


class Elf:
    """What the loader reads in a program or a library."""

    def __init__(self, path):
        shown = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
        self.needed = re.findall(r"^\s+NEEDED\s+(\S+)", shown, re.M)
        self.paths = re.findall(r"^\s+(RPATH|RUNPATH)\s+(\S+)", shown, re.M)
        references = shown.partition("Version References:")[2]
        self.versions = {name: [number for other, number in re.findall(r"\b(GLIBC|GLIBCXX|CXXABI)_(\d[\d.]*\d)", references)
                                if other == name] for name in ("GLIBC", "GLIBCXX", "CXXABI")}


def check_data(tree):
    for name in ("data/shakespeare.txt", "data/gpt2/encoder.json", "data/gpt2/vocab.bpe", "configs", "licenses"):
        if not (tree / "share/gpt-train" / name).exists():
            fail(f"{tree} lacks share/gpt-train/{name}: run scripts/package.sh without --build, which installs everything")


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def required_paths():
    folders = [f"{lib}/python{python}/{packages}" for python in PYTHONS
               for lib, packages in (("lib", "site-packages"), ("lib64", "site-packages"), ("lib", "dist-packages"))]
    return ["$ORIGIN/../lib/gpt-train", *(f"$ORIGIN/../{folder}/torch/lib" for folder in folders)]


def check_program(name, elf):
    if [kind for kind, _ in elf.paths] != ["RPATH"]:
        fail(f"{name} has no RPATH of its own, or a RUNPATH, which LD_LIBRARY_PATH overrides: link it with --disable-new-dtags")
    if elf.paths[0][1].split(":") != required_paths():
        fail(f"{name} does not look for libraries where a package has them, but in {elf.paths[0][1]}")


def check_libraries(elves, is_wheel):
    """Every library comes with the package, with torch or with the system."""
    brought = {path.name for path in elves}
    for path, elf in elves.items():
        for library in elf.needed:
            if library in brought or library in FROM_SYSTEM or (is_wheel and FROM_TORCH.fullmatch(library)):
                continue
            fail(f"{path.name} needs {library}, which neither the package nor every system has")


def needs(elves):
    """The newest versions of glibc, libstdc++ and its ABI that any of them asks for."""
    return tuple(max((v for elf in elves.values() for v in elf.versions[name]), key=number, default="0")
                 for name in ("GLIBC", "GLIBCXX", "CXXABI"))


def has_all(versions, needed):
    return all(number(has) >= number(need) for has, need in zip(versions, needed))


def platform_tag(needed):
    for minor, versions in MANYLINUX.items():
        if has_all(versions, needed):
            return f"manylinux_2_{minor}_x86_64"
    fail(f"no tag of wheels promises glibc {needed[0]} with libstdc++ {needed[1]}: build on an older system")


def requirements(needed):
    systems = [name for name, versions in SYSTEMS.items() if has_all(versions, needed)]
    return (f"It needs Linux on x86-64 with glibc {needed[0]} and libstdc++ {needed[1]} or later, as {', '.join(systems)} and newer ones "
            "have them.")


def archive_readme(version, needed):
    return f"""gpt-train {version} for CPUs, with all that it needs. Keep this folder anywhere; run the programs in bin/.
{requirements(needed)}

    bin/gpt-train --config configs/shakespeare_char.yaml    train on the plays of Shakespeare, into models/shakespeare_char
    bin/gpt-generate "ROMEO."                               continue a text with the newest model
    bin/gpt-train --data your.txt                           train on your own text; the same command again continues a stopped run
    bin/gpt-diagnose                                        see what this machine can do
    bin/gpt-train --help                                    see every flag

To have the programs on the PATH:              export PATH="$PWD/bin:$PATH"
To have their flags completed in bash:         for file in "$PWD"/share/bash-completion/completions/*; do source "$file"; done
To have their flags completed in zsh:          fpath=("$PWD/share/zsh/site-functions" $fpath), before compinit is called
To update: unpack the newer archive, and delete this folder. Runs are where you trained them; prepared text is in ~/.cache/gpt-train.

The licences of what the programs contain are in share/gpt-train/licenses.
"""


def files_of(tree):
    return sorted(path for path in tree.rglob("*") if path.is_file())


def mode_of(path):
    return 0o755 if os.access(path, os.X_OK) else 0o644


def write_archive(tree, folder, version, seconds, needed):
    root = f"gpt-train-{version}"
    target = folder / f"{root}-linux-x86_64.tar.gz"

    def entry(name, kind=tarfile.REGTYPE, mode=0o644, size=0, link=""):
        info = tarfile.TarInfo(f"{root}/{name}")
        info.type, info.mode, info.size, info.mtime, info.linkname = kind, mode, size, seconds, link
        return info

    def add(tar, name, data, mode=0o644):
        tar.addfile(entry(name, mode=mode, size=len(data)), io.BytesIO(data))

    # gzip, because a bare system has no other: Debian's minimal base has tar and gzip, but neither xz nor zstd.
    with open(target, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in files_of(tree):
            add(tar, path.relative_to(tree), path.read_bytes(), mode_of(path))
        add(tar, "share/gpt-train/package", b"archive\n")
        add(tar, "README.txt", archive_readme(version, needed).encode())
        tar.addfile(entry("configs", tarfile.SYMTYPE, link="share/gpt-train/configs"))
    return target


def wheel_metadata(version, needed):
    python = f">={PYTHONS[0]},<3.{int(PYTHONS[-1].split('.')[1]) + 1}"
    return f"""Metadata-Version: 2.1
Name: gpt-train
Version: {version}
Summary: {SUMMARY}
Requires-Python: {python}
Requires-Dist: torch=={TORCH}
Description-Content-Type: text/plain

The programs gpt-train, gpt-generate, gpt-prepare, gpt-export, gpt-eval, gpt-serve, gpt-board, gpt-prune, gpt-diagnose and gpt-bench, compiled for CPUs. {requirements(needed)}
They use the libraries of the torch {TORCH} that is installed beside them, and no Python runs with them.
"""


def write_wheel(tree, folder, version, seconds, needed):
    tag = f"py3-none-{platform_tag(needed)}"
    name = f"gpt_train-{version}"
    target = folder / f"{name}-{tag}.whl"
    info = f"{name}.dist-info"
    entries = {}  # name -> (bytes, mode)
    for path in files_of(tree):
        inside = path.relative_to(tree)
        if FROM_TORCH.fullmatch(path.name):
            continue
        place = f"scripts/{path.name}" if inside.parts[0] == "bin" else f"data/{inside}"
        entries[f"{name}.data/{place}"] = (path.read_bytes(), mode_of(path))
    entries[f"{name}.data/data/share/gpt-train/package"] = (b"wheel\n", 0o644)
    entries[f"{info}/METADATA"] = (wheel_metadata(version, needed).encode(), 0o644)
    entries[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: gpt-train\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644)
    # RECORD comes last, as the standard of wheels recommends.
    lines = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(entry_name, data, mode):
            entry = zipfile.ZipInfo(entry_name, time.gmtime(seconds)[:6])
            entry.create_system, entry.external_attr, entry.compress_type = 3, (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)

        for entry_name, (data, mode) in sorted(entries.items(), key=lambda item: (item[0].startswith(info), item[0])):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{entry_name},sha256={digest},{len(data)}\n")
            add(entry_name, data, mode)
        add(f"{info}/RECORD", ("".join(lines) + f"{info}/RECORD,,\n").encode(), 0o644)
    return target


def main(kind, tree, folder, version, seconds):
    tree, folder = pathlib.Path(tree), pathlib.Path(folder)
    is_wheel = kind == "wheel"
    elves = {path: Elf(path) for path in files_of(tree) if is_elf(path) and not (is_wheel and FROM_TORCH.fullmatch(path.name))}
    for path, elf in elves.items():
        if path.parent == tree / "bin":
            check_program(path.name, elf)
    check_libraries(elves, is_wheel)
    check_data(tree)
    folder.mkdir(parents=True, exist_ok=True)
    needed = needs(elves)
    write = write_wheel if is_wheel else write_archive
    target = write(tree, folder, version, int(seconds), needed)
    unpacked = sum(path.stat().st_size for path in files_of(tree) if not (is_wheel and FROM_TORCH.fullmatch(path.name)))
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB, {unpacked / 1e6:.0f} MB unpacked). {requirements(needed)}")


if __name__ == "__main__":
    if len(sys.argv) != 6 or sys.argv[1] not in ("archive", "wheel"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
