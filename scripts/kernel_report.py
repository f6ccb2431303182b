"""Compiles every CUDA source of compile_commands.json for one architecture after the other and prints a line for each kernel.

usage: kernel_report.py COMPILE_COMMANDS ARCHITECTURE...     called by scripts/kernel_report.sh
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

REGISTERS = 65536  # of a multiprocessor, allocated in units of 256 to a warp
# Warps, blocks and bytes of shared memory that a multiprocessor holds, from the table of compute capabilities in NVIDIA's CUDA C++
# programming guide.
LIMITS = {75: (32, 16, 64 << 10), 80: (64, 32, 164 << 10), 86: (48, 16, 100 << 10), 89: (48, 24, 100 << 10),
          90: (64, 32, 228 << 10), 100: (64, 32, 228 << 10), 120: (48, 24, 100 << 10)}
DEFAULT_BLOCK = 256  # threads, where a kernel declares no bound


def cuda_commands(path):
    for entry in json.loads(path.read_text()):
        if not entry["file"].endswith(".cu"):
            continue
        words, kept = shlex.split(entry["command"]), []
        skips = 0
        for word in words:
            if skips:
                skips -= 1
            elif word in ("-o", "-c", "-x"):
                skips = 1
            elif not word.startswith(("--generate-code", "-gencode", "-arch")):
                kept.append(word)
        yield entry["directory"], pathlib.Path(entry["file"]), kept


def compile_kernels(directory, source, words, architecture):
    """{mangled name: facts} of the kernels of one source."""
    with tempfile.TemporaryDirectory() as folder:
        command = words + [str(source), f"-arch=sm_{architecture}", "-cubin", "-o", f"{folder}/out.cubin", "-Xptxas", "-v",
                           "--keep", "--keep-dir", folder]
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"{source.name} does not compile for sm_{architecture}:\n{result.stderr}")
        return with_accesses(compiler_facts(result.stderr), next(pathlib.Path(folder).glob("*.ptx")).read_text())


def compiler_facts(log):
    kernels, name = {}, None
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            name = found[1]
            kernels[name] = {"registers": 0, "shared": 0, "spilled": 0, "stack": 0}
        elif name and (found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            kernels[name]["stack"] = int(found[1])
            kernels[name]["spilled"] = int(found[2]) + int(found[3])
        elif name and (found := re.search(r"Used (\d+) registers", line)):
            kernels[name]["registers"] = int(found[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                kernels[name]["shared"] = int(shared[1])
    return kernels


def with_accesses(kernels, ptx):
    """The same with the block's bound and the numbers of wide and of all accesses to global memory."""
    for body in re.split(r"(?=\.entry )", ptx)[1:]:
        facts = kernels[re.match(r"\.entry (\w+)", body)[1]]
        bound = re.search(r"\.maxntid (\d+)", body)
        facts["block"] = int(bound[1]) if bound else DEFAULT_BLOCK
        for kind in ("ld", "st"):
            accesses = re.findall(rf"\b{kind}\.global[.\w]*", body)
            facts[kind] = sum(".v4." in access for access in accesses), len(accesses)
    return kernels


def occupancy(facts, architecture):
    """Of the warps that a multiprocessor can hold, in percent."""
    warps, blocks, shared = LIMITS[architecture]
    of_block = -(-facts["block"] // 32)
    per_warp = -(-facts["registers"] // 8) * 8 * 32
    fitting = min(blocks, warps // of_block, REGISTERS // per_warp // of_block, shared // (facts["shared"] + 1024))
    return 100 * fitting * of_block // warps


def readable(name):
    text = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
    text = re.sub(r"^void |gpt::ops::(cuda::)?|c10::", "", text)
    return re.sub(r"\((Activation|bool|int)\)", "", text).split("(")[0]


def faults(name, facts):
    """Wide accesses are required of instances for aligned tensors, which have a `true` parameter, and of AdamW's kernel."""
    if facts["spilled"]:
        yield "registers spill"
    if facts["stack"]:
        yield "an array lies in memory instead of registers"
    if ("Lb1E" in name or "adamw" in name or "backward_sums" in name) and not (facts["ld"][0] and facts["st"][0]):
        yield "no access of 16 bytes"


def main():
    path, architectures = pathlib.Path(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    if unknown := [a for a in architectures if a not in LIMITS]:
        sys.exit(f"unknown architecture {unknown[0]}; known are {', '.join(map(str, LIMITS))}")
    commands, failed = list(cuda_commands(path)), False
    if not commands:
        sys.exit("this build has no CUDA code: run ./scripts/setup.sh --cuda first")
    for architecture in architectures:
        print(f"sm_{architecture:<57} registers  shared  spilled  16-byte loads  stores  threads  occupancy")
        for directory, source, words in commands:
            for name, facts in compile_kernels(directory, source, words, architecture).items():
                loads, stores = (f"{wide} of {all}" for wide, all in (facts["ld"], facts["st"]))
                print(f"{readable(name):60} {facts['registers']:9}  {facts['shared']:6}  {facts['spilled']:7}  {loads:>13}"
                      f"  {stores:>6}  {facts['block']:7}  {occupancy(facts, architecture):8}%")
                for fault in faults(name, facts):
                    failed = True
                    print(f"    FAILED: {fault}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
