"""Reads the launches that ncu measured and prints those of one update as a table: a line for each kernel, the longest first. Before it, of
the step that was predicted, a table with a line for each part of the step beside its prediction.

usage: kernels_gpu.py KERNELS.csv [FIGURES.json]     as kernels_gpu.sh writes it; and tests/figures/gpu_kernels.json, whose first
    measurement has the predictions, where the same step was measured: one micro-step of GPT-2 with the operators of use_compile and AdamW
"""
import collections
import csv
import json
import re
import sys

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
ONCE = "judge_kernel"  # runs once in an update: src/ops/cuda/verdict.cuh
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1,
         "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "%": 1}
WIDEST = 64  # characters of a name


def read_launches(path):
    """The name of each launch and its metrics in seconds, bytes and percent. ncu's own messages come before the table, and a row of units
    after its head."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if line.startswith('"')))
    if len(rows) < 2 or TIME not in rows[0]:
        raise SystemExit(f"{path} has no launches: ncu measured nothing")
    units = rows[0]
    metrics = [name for name in (TIME, READ, WRITTEN, TENSOR) if name in units]
    return [(row["Kernel Name"], {name: float(row[name].replace(",", "")) * UNITS[units[name]] for name in metrics}) for row in rows[1:]]


def one_update(launches):
    """From the last but one launch of a kernel that runs once in an update to the last."""
    starts = [at for at, (name, _) in enumerate(launches) if ONCE in name]
    if len(starts) < 2:
        raise SystemExit(f"{len(launches)} launches hold no whole update: measure others or more, with SKIP=N and LAUNCHES=N")
    return launches[starts[-2]:starts[-1]]


def without_templates(name):
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return name


def short(name):
    """Without parameters, but for what tells kernels of one template apart: the functor of LibTorch's, the kernel that CUTLASS's has as a
    parameter. Of a name that is still too long, the middle is left out."""
    name = name.removeprefix("void ").replace("(anonymous namespace)", "").replace("<unnamed>", "")
    base = re.sub(r"\(.*", "", without_templates(name)).split("::")[-1].strip()
    told = re.search(r"\b(cutlass_\w+|\w+_cutlass_\w+|\w*[Ff]unctor\w*|\w+Ops?\b|\w+_kernel_cuda\w*)", name[len(base):])
    if told and "gpt::" not in name:
        base += " " + told[0]
    base = base.replace("cudnn_generated_fort_native_", "cudnn_")
    return base if len(base) <= WIDEST else base[: WIDEST // 2 - 1] + "…" + base[-WIDEST // 2:]


PRODUCT = "product"
# What the name of a kernel contains, and the part of the step, by its name in the figures. The first that matches counts.
PARTS = (("cross_entropy", "cross entropy"), ("fprop", "attention, forward (cuDNN)"),
         ("bprop|compute_dot|convert_dq", "attention, backward (cuDNN)"), ("nvjet|splitK|gemm|cutlass", PRODUCT),
         ("add_norm_backward", "residual sum and norm, backward"),
         ("add_norm", "residual sum and norm, forward"), ("activation_backward", "GELU, backward, with the sums for biases"),
         ("activation_kernel", "GELU, forward"), ("pack_gradients", "packing of the heads' gradients"),
         ("sum_rows", "sums for the bias of queries, keys and values"), ("add_parts_of_runs", "embedding, batch and scalars"),
         ("add_parts", "second parts of sums over rows"), ("adamw|sum_squares|norm_of_parts|judge", "norm of the gradients and AdamW"),
         ("", "embedding, batch and scalars"))


def parts_of_step(names):
    """The part of the step that each of these launches of an update belongs to. Products before those of the head are in the forward pass,
    and later ones in the backward pass."""
    parts = [next(part for pattern, part in PARTS if re.search(pattern, name)) for name in names]
    losses = [at for at, part in enumerate(parts) if part == "cross entropy"]
    if not losses:
        raise SystemExit("no cross entropy of use_compile's operators in this update: its parts cannot be told")
    # Each chunk has a product before its cross entropy, and two after it: for the gradients of its rows and of the weight.
    first, last, left = losses[0] - 1, losses[-1], 2
    for at, part in enumerate(parts):
        if part != PRODUCT:
            continue
        is_of_head = first <= at and (at < last or left > 0)
        left -= is_of_head and at > last
        parts[at] = ("the head's products, forward and backward" if is_of_head else
                     "the blocks' products, forward, with their biases" if at < first else "the blocks' products, backward")
    return parts


def predictions(path):
    """Milliseconds of the parts of the step, by their names."""
    with open(path, encoding="utf-8") as file:
        figures = json.load(file)
    column = [name if isinstance(name, str) else name["name"] for name in figures["columns"]].index("predicted")
    return {row[0]: row[column] for row in figures["measurements"][0]["rows"]}


def grouped(names, launches):
    """The metrics of the launches that have one name, in the order in which the names come first, and those of all."""
    groups = collections.defaultdict(list)
    for name, (_, metrics) in zip(names, launches):
        groups[name].append(metrics)
    return groups, [metrics for _, metrics in launches]


def summed(rows):
    """Seconds, bytes read and written, TB/s, and the mean use of the tensor cores in percent."""
    seconds, read, written = (sum(row[key] for row in rows) for key in (TIME, READ, WRITTEN))
    busy = sum(row.get(TENSOR, 0) * row[TIME] for row in rows) / seconds
    return seconds, read, written, (read + written) / seconds / 1e12, busy


def table_of_parts(launches, predicted):
    parts, whole = grouped(parts_of_step([name for name, _ in launches]), launches)

    def line(name, rows):
        seconds, _, _, speed, busy = summed(rows)
        told = f"{predicted[name]:.2f}" if name in predicted else ""
        return f"| {name} | {len(rows)} | {1e3 * seconds:.2f} | {told} | {speed:.2f} | {busy:.0f} % |"

    return ["| part of a step | launches | ms | predicted for an H100 | TB/s | tensor cores |",
            "| --- | ---: | ---: | ---: | ---: | ---: |", *(line(*item) for item in parts.items()), line("in all", whole)]


def table(launches):
    kernels, whole = grouped([short(name) for name, _ in launches], launches)

    def line(name, rows):
        seconds, read, written, speed, busy = summed(rows)
        return (f"| {name} | {len(rows)} | {1e3 * seconds:.3f} | {read / 1e9:.2f} | {written / 1e9:.2f} "
                f"| {speed:.2f} | {busy:.0f} % | {100 * seconds / summed(whole)[0]:.1f} % |")

    return ["| kernel | launches | ms | GB read | GB written | TB/s | tensor cores | share |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
            *(line(*item) for item in sorted(kernels.items(), key=lambda item: -sum(row[TIME] for row in item[1]))),
            line("in all", whole)]


if __name__ == "__main__":
    update = one_update(read_launches(sys.argv[1]))
    of_parts = [*table_of_parts(update, predictions(sys.argv[2])), ""] if len(sys.argv) > 2 else []
    print("\n".join(of_parts + table(update)))
