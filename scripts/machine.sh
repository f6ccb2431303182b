# Sourced by setup.sh and quickstart.sh: what hardware and tools this machine has.

cuda_major=13          # LibTorch 2.11.0 is built with CUDA 13
min_driver=580         # the first NVIDIA driver that runs it
min_capability=75      # the oldest cards that its nvcc compiles for

# The number of build jobs, within two limits: the cores, and some 2 GB of memory for each compiler.
build_jobs() {
  local cores limit memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1024 / 1024 / 2) }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  [[ $limit == max ]] || memory=$((limit / 1024 / 1024 / 1024 / 2 < memory ? limit / 1024 / 1024 / 1024 / 2 : memory))
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

# The system's nvcc of the right major version, if there is one.
system_nvcc() {
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc /usr/local/cuda-$cuda_major*/bin/nvcc; do
    if [[ -x $nvcc ]] && "$nvcc" --version 2>/dev/null | grep -q "release $cuda_major\."; then
      echo "$nvcc"
      return
    fi
  done
}

query_gpus() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null || true; }

# The CUDA architectures of the usable cards, in CMake's form ("86;90"); empty if there are none.
# A card that cannot be used is never passed over silently.
usable_gpus() {
  local driver capabilities usable
  driver=$(query_gpus driver_version | head -n 1)
  if [[ ! $driver =~ ^[0-9]+\. ]]; then
    ! grep -qs 0x10de /sys/bus/pci/devices/*/vendor ||
      warn "there is an NVIDIA card but no working driver (nvidia-smi shows nothing): continuing without it; install driver $min_driver or later to use it"
    return 0
  fi
  if ((${driver%%.*} < min_driver)); then
    warn "NVIDIA driver $driver is too old for CUDA $cuda_major: continuing without the GPU; install $min_driver or later to use it"
    return 0
  fi
  capabilities=$(query_gpus compute_cap | tr -d '. ' | sort -nu)
  usable=$(awk -v least=$min_capability '$1 >= least' <<<"$capabilities")
  [[ $usable ]] || warn "this GPU's compute capability ($(head -n 1 <<<"$capabilities")) is below the $min_capability that CUDA $cuda_major compiles for; continuing without it"
  paste -sd ';' <<<"$usable"
}
