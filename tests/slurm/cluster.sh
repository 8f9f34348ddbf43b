#!/usr/bin/env bash
# A real Slurm for tests, with accounting and preemption: this machine, and the two hosts of hosts.sh.
#
#   cluster.sh start DIR    starts it; its state, logs and database are in DIR
#   cluster.sh stop DIR     stops it and takes its files out of /etc/slurm
#
# By hand and as root, without systemd or cgroups. Three partitions share this machine: a job in
# `urgent` takes the place of those in `low`, which Slurm asks to end, then kills and queues again;
# `short` has a time limit. `pair` has the two hosts. Memory is a resource, and arrays have at most
# four jobs.
set -euo pipefail

MARK="# Written by tests/slurm/cluster.sh"
PACKAGES="slurm-wlm munge slurmdbd mariadb-server"
CONFIGS="/etc/slurm/slurm.conf /etc/slurm/slurmdbd.conf"
CONTROLLER_PORT=26817
NODE_PORT=26818
ACCOUNTS_PORT=26819
DATABASE_PORT=26820
# Time to save a checkpoint: after the notice of a preemption, and between SIGTERM and SIGKILL.
GRACE_SECONDS=${GRACE_SECONDS:-10}
KILL_SECONDS=${KILL_SECONDS:-20}
# nproc would count the threads that OMP_NUM_THREADS allows.
CPUS=${CPUS:-$(getconf _NPROCESSORS_ONLN)}
HOSTS=$(dirname "$(realpath "$0")")/hosts.sh
NETWORK=10.213.77
MEMORY_MB=$(awk '/^MemTotal/ { print int($2 / 1024 * 0.8) }' /proc/meminfo)

die() {
    echo "cluster.sh: $*" >&2
    exit 1
}

require_programs() {
    [ "$(id -u)" = 0 ] || die "Slurm's daemons are started as root: run this as root"
    local pair missing=()
    for pair in slurmctld:slurm-wlm slurmd:slurm-wlm sbatch:slurm-wlm munged:munge \
        slurmdbd:slurmdbd mariadbd:mariadb-server mariadb-install-db:mariadb-server \
        ip:iproute2; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%:*}" >/dev/null ||
            missing+=("${pair%:*} (package ${pair#*:})")
    done
    [ ${#missing[@]} = 0 ] || die "missing: ${missing[*]}; install them with
  apt-get update && apt-get install -y $PACKAGES"
}

# A file that somebody else wrote belongs to a cluster that this machine is part of.
require_own_configs() {
    local file
    for file in $CONFIGS; do
        [ ! -e "$file" ] || grep -qF "$MARK" "$file" ||
            die "$file was not written by this script: move it away first, or test on another machine"
    done
}

# The process whose number is in a file, if that is still this program.
alive() {
    local file=$1 program=$2
    [ -s "$file" ] && [ "$(cat "/proc/$(cat "$file")/comm" 2>/dev/null)" = "$program" ]
}

# Waits until a command succeeds, a quarter of a second at a time.
until_true() {
    local seconds=$1 what=$2
    shift 2
    for _ in $(seq $((seconds * 4))); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.25
    done
    die "$what not within $seconds s; see the logs in $DIR"
}

start_munge() {
    mkdir -p "$DIR/munge"
    [ -s "$DIR/munge/key" ] || dd if=/dev/urandom of="$DIR/munge/key" bs=1 count=1024 status=none
    chmod 600 "$DIR/munge/key"
    # Where all of Slurm's programs look for it; munged is root here, as everything else is.
    mkdir -p /run/munge
    chmod 755 /run/munge
    munge -n >/dev/null 2>&1 || munged --force --num-threads=2 --key-file="$DIR/munge/key" \
        --log-file="$DIR/munge/log" --pid-file="$DIR/munge/pid" --seed-file="$DIR/munge/seed"
    until_true 10 "munge answers" munge -n
}

start_database() {
    if [ ! -d "$DIR/database" ]; then
        mariadb-install-db --no-defaults --user=root --datadir="$DIR/database" \
            --auth-root-authentication-method=normal --skip-test-db >"$DIR/database.log" 2>&1
    fi
    if ! alive "$DIR/database.pid" mariadbd; then
        setsid mariadbd --no-defaults --user=root --datadir="$DIR/database" \
            --socket="$DIR/database.socket" --pid-file="$DIR/database.pid" \
            --bind-address=127.0.0.1 --port=$DATABASE_PORT --innodb-buffer-pool-size=64M \
            --innodb-lock-wait-timeout=900 >>"$DIR/database.log" 2>&1 </dev/null &
    fi
    until_true 60 "the database answers" mariadb -S "$DIR/database.socket" -e "select 1"
    mariadb -S "$DIR/database.socket" <<SQL
create database if not exists slurm_acct_db;
create user if not exists slurm@127.0.0.1 identified by 'loopback';
create user if not exists slurm@localhost identified by 'loopback';
grant all on slurm_acct_db.* to slurm@127.0.0.1, slurm@localhost;
SQL
}

write_configs() {
    local host
    host=$(hostname -s)
    mkdir -p /etc/slurm "$DIR/controller"
    cat >/etc/slurm/slurm.conf <<CONF
$MARK for the cluster in $DIR
ClusterName=rlhf_lab_test
SlurmctldHost=$host($NETWORK.254)
SlurmUser=root
AuthType=auth/munge
SlurmctldPort=$CONTROLLER_PORT
SlurmdPort=$NODE_PORT
StateSaveLocation=$DIR/controller
SlurmdSpoolDir=$DIR/%n
SlurmctldPidFile=$DIR/slurmctld.pid
SlurmdPidFile=$DIR/%n.pid
SlurmctldLogFile=$DIR/slurmctld.log
SlurmdLogFile=$DIR/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageEnforce=limits
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$ACCOUNTS_PORT
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=500
MaxArraySize=4
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=$KILL_SECONDS
MinJobAge=300
# How long a job that is queued again waits before it may start; two minutes otherwise.
AuthInfo=cred_expire=10
JobRequeue=1
SlurmctldDebug=info
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$host NodeAddr=$NETWORK.254 CPUs=$CPUS RealMemory=$MEMORY_MB State=UNKNOWN
NodeName=host1 NodeAddr=$NETWORK.1 CPUs=$CPUS RealMemory=$MEMORY_MB State=UNKNOWN
NodeName=host2 NodeAddr=$NETWORK.2 CPUs=$CPUS RealMemory=$MEMORY_MB State=UNKNOWN
PartitionName=pair Nodes=host1,host2 MaxTime=INFINITE State=UP PreemptMode=OFF
PartitionName=low Nodes=$host Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=$GRACE_SECONDS
PartitionName=urgent Nodes=$host MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=short Nodes=$host MaxTime=10 State=UP PriorityTier=1
CONF
    cat >/etc/slurm/slurmdbd.conf <<CONF
$MARK for the cluster in $DIR
AuthType=auth/munge
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$ACCOUNTS_PORT
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$DATABASE_PORT
StorageUser=slurm
StoragePass=loopback
StorageLoc=slurm_acct_db
PidFile=$DIR/slurmdbd.pid
LogFile=$DIR/slurmdbd.log
CONF
    chmod 600 /etc/slurm/slurmdbd.conf
}

nodes_are_up() {
    [ "$(sinfo -h -N -o "%N %T" | grep -E "idle|mixed|allocated" | sort -u | wc -l)" = 3 ]
}

start_nodes() {
    local host name
    name=$(hostname -s)
    for host in "$name" host1 host2; do
        alive "$DIR/$host.pid" slurmd && continue
        if [ "$host" = "$name" ]; then slurmd; else "$HOSTS" on "$host" slurmd; fi
    done
    until_true 30 "the nodes are up" nodes_are_up
}

start() {
    require_programs
    require_own_configs
    mkdir -p "$DIR"
    start_munge
    start_database
    alive "$DIR/slurmctld.pid" slurmctld || { write_configs && "$HOSTS" start; }
    alive "$DIR/slurmdbd.pid" slurmdbd || slurmdbd
    until_true 30 "accounting answers" sacctmgr -n show cluster
    [[ " $(sacctmgr -nP show cluster format=Cluster) " == *rlhf_lab_test* ]] ||
        sacctmgr -i add cluster rlhf_lab_test >/dev/null
    alive "$DIR/slurmctld.pid" slurmctld || slurmctld
    until_true 30 "the controller answers" scontrol ping
    start_nodes
    sinfo
}

# Asks a daemon to end, waits for it, and kills it after half a minute.
end_daemon() {
    local file=$1 program=$2
    alive "$file" "$program" || return 0
    local pid
    pid=$(cat "$file")
    kill "$pid"
    for _ in $(seq 120); do
        [ -d "/proc/$pid" ] || break
        sleep 0.25
    done
    [ ! -d "/proc/$pid" ] || kill -9 "$pid"
    rm -f "$file"
}

stop() {
    if alive "$DIR/slurmctld.pid" slurmctld; then
        squeue -h -o %A | sort -u | xargs -r scancel --signal=KILL --full 2>/dev/null || true
        squeue -h -o %A | sort -u | xargs -r scancel 2>/dev/null || true
        for _ in $(seq 40); do
            [ -n "$(squeue -h 2>/dev/null)" ] || break
            sleep 0.25
        done
    fi
    local host file
    for host in "$(hostname -s)" host1 host2; do
        end_daemon "$DIR/$host.pid" slurmd
    done
    end_daemon "$DIR/slurmctld.pid" slurmctld
    end_daemon "$DIR/slurmdbd.pid" slurmdbd
    end_daemon "$DIR/database.pid" mariadbd
    end_daemon "$DIR/munge/pid" munged
    "$HOSTS" stop
    for file in $CONFIGS; do
        if [ -e "$file" ] && grep -qF "$MARK for the cluster in $DIR" "$file"; then
            rm "$file"
        fi
    done
}

[ $# = 2 ] || die "usage: cluster.sh start|stop DIR"
DIR=$(realpath -m "$2")
export PATH="$PATH:/usr/sbin:/sbin"
case $1 in
start) start ;;
stop) stop ;;
*) die "usage: cluster.sh start|stop DIR" ;;
esac
