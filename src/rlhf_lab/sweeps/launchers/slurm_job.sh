#!/bin/bash
#:header
# Add --partition, --account and --time as your cluster needs them.
set -uo pipefail
# An allocation may have set the memory of processors or GPUs, which srun refuses beside that of nodes.
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
# Ports by the number of the job, below those that Linux gives to clients.
port=$((20000 + SLURM_JOB_ID % 192 * 64))
# Seconds for trainers to save their state once a process is lost.
grace=#:grace
# The id and the key that the servers and trainers of the job share.
export RLHF_LAB_RUN_ID="$SLURM_JOB_ID"
export RLHF_LAB_SERVER_KEY="$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')"
#:begin
declare -A names=()
trainers=0
stopped=false
trap 'stopped=true' TERM USR1 USR2
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# start NAME NODE COMMAND: a step on one node. Slurm signals every process of a job, trainers too;
# torchrun would end them at the second signal, while they save their state.
start() {
    local name=$1 host=${hosts[$2]} ignored=""
    shift 2
    if [[ $name == trainer* ]]; then
        trainers=$((trainers + 1))
        ignored=--ignore-signal=TERM,USR1,USR2
    fi
    srun --overlap --export=ALL --kill-on-bad-exit=1 --cpu-bind=none --nodes=1 --ntasks=1 \
        --nodelist="$host" #:{container}env $ignored "$@" &
    names[$!]="$name on $host"
}

# The trainers that run.
training() {
    for pid in "${!names[@]}"; do
        [[ ${names[$pid]} == trainer* ]] && kill -0 "$pid" 2>/dev/null && echo "$pid"
    done
}

overrides=(
    #:overrides
)
#:steps

# Every step is watched, servers too: the first that fails, or a server that ends, ends the job.
# `wait -n -p` is younger than the bash of many clusters.
code=0
while [ "$trainers" -gt 0 ]; do
    for pid in "${!names[@]}"; do
        kill -0 "$pid" 2>/dev/null && continue
        ended=0
        wait "$pid" || ended=$?
        name=${names[$pid]}
        unset "names[$pid]"
        if [[ $name == trainer* ]]; then
            trainers=$((trainers - 1))
            [ "$ended" = 0 ] && continue
        elif $stopped; then
            continue
        fi
        echo "$name ended with exit code $ended: the job ends" >&2
        code=$((ended > 0 ? ended : 1))
        break 2
    done
    sleep 0.5
done
if [ "$code" != 0 ]; then
    # Trainers heed this signal and save their state, if they can.
    kill $(training) 2>/dev/null
    for _ in $(seq "$grace"); do
        [ -n "$(training)" ] || break
        sleep 1
    done
    # The launcher queues the job again.
    if $stopped; then exit 75; fi
fi
exit "$code"
