#!/usr/bin/env bash
# Runs gpt-train under Slurm's srun, on a Slurm cluster of this machine alone that lasts as long as the script does, and compares the
# weights with those of one process. Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge.
#
# usage: scripts/try_slurm.sh [TASKS]      2 tasks unless another number is given; they must divide 4
set -euo pipefail
cd "$(dirname "$0")/.."
tasks=${1:-2}
for program in slurmctld slurmd srun munged; do
  command -v $program >/dev/null || { echo "error: $program is missing: apt-get install slurmctld slurmd slurm-client munge" >&2; exit 1; }
done
[[ $(id -u) == 0 ]] || { echo "error: Slurm's daemons need root" >&2; exit 1; }

scratch=$(mktemp -d)
host=$(uname -n)
daemons=()
end() {
  ((${#daemons[@]})) && kill "${daemons[@]}" 2>/dev/null || true
  rm -rf "$scratch"
}
trap end EXIT

export SLURM_CONF=$scratch/slurm.conf
mkdir "$scratch/state" "$scratch/spool" "$scratch/munge"
cat >"$SLURM_CONF" <<END
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge/socket
CredType=cred/munge
SlurmctldPort=46817
SlurmdPort=46818
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MailProg=/bin/true
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:4 State=UP
END

dd if=/dev/urandom of="$scratch/munge/key" bs=1024 count=1 status=none
chown -R munge: "$scratch/munge" && chmod 755 "$scratch" "$scratch/munge" && chmod 600 "$scratch/munge/key"
setpriv --reuid munge --regid munge --clear-groups munged --foreground --key-file "$scratch/munge/key" \
  --socket "$scratch/munge/socket" --pid-file "$scratch/munge/pid" --log-file "$scratch/munge/log" \
  --seed-file "$scratch/munge/seed" >"$scratch/munged.log" 2>&1 &
daemons+=($!)
slurmctld -D >"$scratch/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D >"$scratch/slurmd.log" 2>&1 &
daemons+=($!)
for ((i = 0; i < 100; ++i)); do
  [[ $(sinfo --noheader --format=%t 2>/dev/null) == idle ]] && break
  sleep 0.2
done
[[ $(sinfo --noheader --format=%t) == idle ]] || { tail -n 20 "$scratch"/*.log >&2; exit 1; }

for ((i = 0; i < 400; ++i)); do echo "Line $i of a text that several processes learn together."; done >"$scratch/text.txt"
run=(build/bin/gpt-train --data "$scratch/text.txt" --n_layer 2 --n_head 2 --n_embd 32 --block_size 32 --batch_size 4
  --gradient_accumulation_steps 4 --max_steps 30 --eval_interval 0 --threads 1 --lanes 4)
srun --ntasks "$tasks" --oversubscribe --overcommit "${run[@]}" --output_dir "$scratch/srun"
"${run[@]}" --output_dir "$scratch/one" 2>/dev/null
.deps/venv/bin/python - "$scratch/srun/ckpt.pt" "$scratch/one/ckpt.pt" <<'END'
import sys
import torch
srun, one = (torch.load(path, weights_only=True)["model"] for path in sys.argv[1:])
different = [name for name in one if not torch.equal(one[name], srun[name])]
sys.exit(f"error: other weights than one process has: {different}") if different else print("The weights are those of one process.")
END
