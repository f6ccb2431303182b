"""Compiles every CUDA source of compile_commands.json for each architecture, and prints a line for each kernel.

usage: kernel_report.py COMPILE_COMMANDS [ARCHITECTURE...]     called by scripts/kernel_report.sh, and by CTest for 90, with --all for 80 too
"""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

REGISTERS = 65536  # registers of a multiprocessor, allocated in units of 256 to a warp
# Warps, blocks and bytes of shared memory that a multiprocessor holds, from the table of compute capabilities in NVIDIA's CUDA C++
# programming guide.
LIMITS = {75: (32, 16, 64 << 10), 80: (64, 32, 164 << 10), 86: (48, 16, 100 << 10), 89: (48, 24, 100 << 10),
          90: (64, 32, 228 << 10), 100: (64, 32, 228 << 10), 120: (48, 24, 100 << 10)}
DEFAULT_BLOCK = 256  # threads, where a kernel declares no bound


@dataclasses.dataclass(frozen=True)
class Kernel:
    """How often a kernel moves the elements of its tensors to or from memory; `least` and `why` where it could be less.
    wide: whose accesses must be of 16 bytes: those of `aligned` instances, which have a `true` parameter, of `all`, or only the `loads` of
    all; or why of none.
    alone: loads of single values, such as a row's token or the key of dropout, which are exempt: beside them lies nothing that the
    thread needs."""
    moves: str
    least: str = ""
    why: str = ""
    wide: str = "aligned"
    alone: int = 0


PARTS = "sums over rows go through memory as float32 parts of at least 32 rows, because no two blocks may add to one value"
KERNELS = {
    "activation_kernel": Kernel("2, gated 3"),
    "activation_backward_kernel": Kernel("3, gated 5"),
    "activation_backward_sums_kernel": Kernel("3 + 1/32, gated 5 + 1/16", "3, gated 5", PARTS, wide="all"),
    "add_norm_kernel": Kernel("4, without a branch 2"),
    "add_norm_backward_kernel": Kernel("4 or 5, and parts", "4 or 5",  # 5 where the branch's gradient is another
                                       "the sums for weight and bias go through memory once for each block, however many rows it has"),
    "sum_rows_kernel": Kernel("1 + 1/32", "1", PARTS),
    "add_parts_kernel": Kernel("1 of the parts", "0", PARTS,
                               wide="parts are read 16 bytes at a time where they are aligned, and their sums are one value to a thread"),
    "cross_entropy_kernel": Kernel("3, kept in shared memory 2", "2", "where shared memory has no place for two rows, a row is read twice, the"
                                   " second time from the L2 cache where that holds the rows in flight", alone=3),  # the target, its logit, the loss's scale
    "distillation_kernel": Kernel("7", "3", "the rows of both models are read three times, later from the L2 cache where that holds the rows in flight",
                                  alone=3),  # the target, its logit, the loss's scale
    "embedding_kernel": Kernel("2, positions 3", "2", "each sequence reads the positions again, from the L2 cache",
                               alone=3),  # the row's token; the key of dropout and its first sample
    "add_runs_kernel": Kernel("1, each token's row 2, and parts of 1/16", "1, each token's row 2",
                              "a run of a token that goes on in another chunk goes through memory as float32 parts, two for 32 rows at most",
                              alone=7),  # the token before, the first, this and the next; its row; the key of dropout and its first sample
    "add_parts_of_runs_kernel": Kernel("1 of the parts, a token's row 2", "0", "a block that summed all rows of a common token would be the last to end",
                                       alone=4),  # tokens at the borders of chunks
    "add_positions_kernel": Kernel("1, each position's row 2", "each position's row 2",
                                   "add_runs_kernel reads the same rows, in the order of their tokens, in which positions cannot be summed"),
    "sort_tokens_kernel": Kernel("2, writes 1", "1, writes 1", "a token is read twice, the second time from a cache", wide="one block sorts few tokens"),
    "join_heads_kernel": Kernel("2, with sums 2 + 1/32", "2", PARTS + "; each head reads cos and sin again, from the caches"),
    "normed_heads_kernel": Kernel("2, backward 3 + 1/32", "2, backward 3",
                                  PARTS + "; each head reads its weights, and cos and sin, again, from the caches"),
    "sum_squares_kernel": Kernel("1", wide="loads"),
    "judge_kernel": Kernel("9 scalars, and for spikes a window", wide="scalars, by one thread, and a window of a thousand values at most"),
    "norm_of_parts_kernel": Kernel("1 of the parts", "0", "a part for each block of the kernel before, which no other block can add to",
                                   wide="one block reads a value for each of the others"),
    "adamw_kernel": Kernel("7, with 16-bit copies 8", wide="all", alone=7),  # rate and counts; scales of both 8-bit moments
    "muon_direction_kernel": Kernel("4", wide="all", alone=3),  # two factors; the scale of the 8-bit moment
    "muon_update_kernel": Kernel("3, with 16-bit copies 4", wide="all"),
    "token_gather_kernel": Kernel("4", "3", "a token is an input and the target before it; the second read comes from the L1 cache",
                                  wide="windows begin at any token, and a batch has few"),
}


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
        kernels = with_bounds(compiler_facts(result.stderr), next(pathlib.Path(folder).glob("*.ptx")).read_text())
        return with_accesses(kernels, instructions(words, f"{folder}/out.cubin"))


def instructions(words, binary):
    """What the device executes (SASS), as text."""
    libraries = [re.sub(r"/torch/include.*", "", word) for word in words if "/torch/include" in word]
    found = [shutil.which("cuobjdump"), *(f"{folder}/triton/backends/nvidia/bin/cuobjdump" for folder in libraries)]
    program = next((path for path in found if path and os.path.exists(path)), None)
    if not program:
        sys.exit("cuobjdump is not here, which reads what was compiled: run ./scripts/setup.sh --tests")
    return subprocess.run([program, "-sass", binary], capture_output=True, text=True, check=True).stdout


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


def with_bounds(kernels, ptx):
    """The same with the most threads of a block."""
    for body in re.split(r"(?=\.entry )", ptx)[1:]:
        bound = re.search(r"\.maxntid (\d+)", body)
        kernels[re.match(r"\.entry (\w+)", body)[1]]["block"] = int(bound[1]) if bound else DEFAULT_BLOCK
    return kernels


def with_accesses(kernels, sass):
    """The same with the numbers of wide and of all accesses to global memory, and of those to a thread's own."""
    for body in re.split(r"Function : ", sass)[1:]:
        facts = kernels[body.split(maxsplit=1)[0]]
        of_kind = {kind: re.findall(rf"\b{kind}\.[.\w]*", body) for kind in ("LDG", "STG", "LDL", "STL", "LDGSTS")}
        of_kind["LDG"] += of_kind["LDGSTS"]  # to shared memory
        for kind in ("LDG", "STG"):
            facts[kind] = sum("128" in access.split(".") for access in of_kind[kind]), len(of_kind[kind])
        facts["local"] = len(of_kind["LDL"]) + len(of_kind["STL"])
    return kernels


def occupancy(facts, architecture):
    """Warps that run at a time, in percent of those that a multiprocessor can hold."""
    warps, blocks, shared = LIMITS[architecture]
    of_block = -(-facts["block"] // 32)
    per_warp = -(-facts["registers"] // 8) * 8 * 32
    fitting = min(blocks, warps // of_block, REGISTERS // per_warp // of_block, shared // (facts["shared"] + 1024))
    return 100 * fitting * of_block // warps


def readable(name):
    text = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
    text = re.sub(r"^void |gpt::ops::(cuda::)?|c10::", "", text)
    return re.sub(r"\((Activation|bool|int)\)", "", text).split("(")[0]


def is_wide(kernel, name, kind):
    return kernel.wide == "all" or kernel.wide == "loads" and kind == "LDG" or kernel.wide == "aligned" and "Lb1E" in name


def faults(name, kernel, facts):
    if facts["spilled"]:
        yield "registers spill"
    if facts["stack"] or facts["local"]:
        yield "an array lies in memory instead of registers"
    for kind, alone in (("LDG", kernel.alone), ("STG", 0)):
        wide, count = facts[kind]
        if is_wide(kernel, name, kind) and 2 * wide < count - alone:
            yield f"{'loads' if kind == 'LDG' else 'stores'} of 16 bytes are less than half"


def compiled(commands, architectures):
    """(architecture, {mangled name: facts}) for each architecture; as many sources at once as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {a: [pool.submit(compile_kernels, *command, a) for command in commands] for a in architectures}
        for architecture, of_sources in jobs.items():
            yield architecture, {name: facts for job in of_sources for name, facts in job.result().items()}


def report(architecture, kernels):
    """Prints the kernels of one architecture, and returns how many faults they have."""
    count, found = 0, set()
    print(f"sm_{architecture:<57} registers  shared  spilled  16-byte loads  stores  threads  occupancy  moves each element")
    for name, facts in kernels.items():
        short = readable(name)
        found.add(short.partition("<")[0])
        kernel = KERNELS.get(short.partition("<")[0], Kernel("?"))
        loads, stores = (f"{wide} of {all}" for wide, all in (facts["LDG"], facts["STG"]))
        print(f"{short:60} {facts['registers']:9}  {facts['shared']:6}  {facts['spilled']:7}  {loads:>13}  {stores:>6}  {facts['block']:7}"
              f"  {occupancy(facts, architecture):8}%  {kernel.moves}{kernel.least and f'; least {kernel.least}'}")
        for fault in faults(name, kernel, facts):
            count += 1
            print(f"    FAILED: {fault}")
    for name in sorted(found ^ KERNELS.keys()):
        count += 1
        print(f"    FAILED: {name} {'is not in KERNELS of kernel_report.py' if name in found else 'is in KERNELS, but not compiled'}")
    return count


def main():
    path, named = pathlib.Path(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    architectures = named or ([80, 90] if os.environ.get("GPT_ALL_TESTS") else [90])
    if unknown := [a for a in architectures if a not in LIMITS]:
        sys.exit(f"unknown architecture {unknown[0]}; known are {', '.join(map(str, LIMITS))}")
    commands = list(cuda_commands(path))
    if not commands:
        sys.exit("this build has no CUDA code: run ./scripts/setup.sh --cuda first")
    failed = sum(report(*of_one) for of_one in compiled(commands, architectures))
    for name, kernel in KERNELS.items():
        if kernel.why:
            print(f"{name}: {kernel.why}")
        if kernel.wide not in ("aligned", "all", "loads"):
            print(f"{name} needs no accesses of 16 bytes: {kernel.wide}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
