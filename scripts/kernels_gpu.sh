#!/usr/bin/env bash
# The kernels of one update on a GPU as ncu (Nsight Compute) measures them, one after the other, with clocks and caches as they are: time,
# bytes from and to memory, and use of the tensor cores. judge_kernel runs once in each update, so that what is printed is from one of its
# launches to the next. (The kernel that gathers a batch would do less well: batches are gathered ahead, by another thread.)
#
# FOLDER/kernels.csv is what ncu wrote, FOLDER/kernels.md what kernels_gpu.py makes of it: a table of kernels and, of the step that was
# predicted (GPT-2 124M with 64 sequences, without FLAGS), one of its parts beside the predictions. It needs what measure_gpu.sh needs, and runs from its archive too.
#
# ncu leaves out the first SKIP launches (2000), which are the start and some updates, and measures LAUNCHES (1000), which hold a whole
# update where it has fewer than 500.
#
# usage: scripts/kernels_gpu.sh FOLDER [FLAGS of gpt-bench measure]   GPT-2 124M, as measure_gpu.sh measures it, where they are left out
set -euo pipefail
source "$(dirname "$0")/steps.sh"

out=$(realpath -m "${1:?usage: scripts/kernels_gpu.sh FOLDER [FLAGS of gpt-bench measure]}") device=cuda
source scripts/measured_parts.sh
flags=("${@:2}") predicted=()
if ((${#flags[@]} == 0)); then
  count=$(sequences)
  flags=("${gpt2_124m[@]}" --data data/shakespeare.txt --device "$device" --batch_size "$count" --compile_mode default)
  ((count != 64)) || predicted=(tests/figures/gpu_kernels.json)  # 64 sequences were predicted
fi
ncu=$(cuda_tool ncu)
mkdir -p "$out"
rm -f "$out/kernels.csv"

metrics=gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum
tensor=sm__pipe_tensor_cycles_active
if grep -q "^$tensor " <("$ncu" --query-metrics 2>/dev/null); then metrics+=,$tensor.avg.pct_of_peak_sustained_elapsed; fi
# ncu has libraries of its own, which those of torch are not to replace.
part 400 kernels "$ncu" --target-processes all --clock-control none --cache-control none --launch-skip "${SKIP:-2000}" \
  --launch-count "${LAUNCHES:-1000}" --metrics "$metrics" --csv --page raw --print-units base --log-file "$out/kernels.csv" \
  "${with_torch[@]}" build/bin/gpt-bench measure "${flags[@]}" --warm-up 2 --updates 14
[[ -s $out/kernels.csv ]] || fail "ncu wrote nothing: see $out/kernels.log"
"$python" -B scripts/kernels_gpu.py "$out/kernels.csv" "${predicted[@]}" | tee "$out/kernels.md"
archive
