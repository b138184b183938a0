#!/usr/bin/env bash
# Boots a small Slurm of Debian's packages in a folder, as processes of this user, and ends them:
#   slurm_cluster.sh start DIR             three nodes with two pretended GPUs each; DIR/environment tells clients where it is
#   slurm_cluster.sh stop DIR              ends all of it
#   slurm_cluster.sh stop-controller DIR   ends only slurmctld, as if the head node were down
#   slurm_cluster.sh start-controller DIR
# It listens on ports that the kernel gives, has no accounting, and exits with 77 where a program is missing. Daemons end
# after a quarter of an hour by themselves, whatever happens to the one who started them.
set -euo pipefail

usage() {
  echo "usage: $0 start|stop|stop-controller|start-controller DIR" >&2
  exit 2
}
[ $# = 2 ] || usage
verb=$1
dir=$2
nodes=(n1 n2 n3)
export PATH=$PATH:/usr/sbin
export SLURM_CONF=$dir/slurm.conf

# Starts a daemon in the foreground of its own session, with a bound on its life.
launch() {
  local name=$1
  shift
  setsid timeout --kill-after=5 900 "$@" >"$dir/log/$name.out" 2>&1 </dev/null &
  echo $! >"$dir/$name.pid"
  disown
}

# Ends the daemon that launch started, and waits for it.
finish() {
  local name=$1 pid
  [ -f "$dir/$name.pid" ] || return 0
  pid=$(cat "$dir/$name.pid")
  rm "$dir/$name.pid"
  # timeout(1) hands the signal on to its child.
  kill -TERM "$pid" 2>/dev/null || return 0
  for _ in $(seq 100); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL -- "-$pid" 2>/dev/null || true
}

# Ends the steps of jobs, which would wait for ever to tell a controller of their ends. They have the log of their node open.
end_steps() {
  local fd pid
  for fd in /proc/[0-9]*/fd/3; do
    case $(readlink "$fd" 2>/dev/null || true) in
      "$dir"/log/*)
        pid=${fd#/proc/}
        pid=${pid%%/*}
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != slurmstepd ] || kill -KILL "$pid" 2>/dev/null || true
        ;;
    esac
  done
}

# Waits for at most 30 seconds.
wait_for() {
  local what=$1
  shift
  for _ in $(seq 300); do
    if "$@" >/dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  echo "slurm_cluster.sh: $what was not there after 30 s; see $dir/log" >&2
  return 1
}

start_controller() {
  launch slurmctld slurmctld -D -f "$dir/slurm.conf"
  wait_for slurmctld scontrol ping
}

all_idle() { [ "$(sinfo -h -N -t idle -o %N | wc -l)" = ${#nodes[@]} ]; }

start() {
  for program in slurmctld slurmd munged sbatch; do
    if ! [ -x "$(command -v "$program")" ]; then
      echo "skipped: $program is missing; run scripts/install_deps.sh --slurm" >&2
      exit 77
    fi
  done
  mkdir -p "$dir"/{log,state}
  chmod 700 "$dir"
  local user ports node
  user=$(id -un)
  read -ra ports < <(python3 - $((${#nodes[@]} + 1)) <<'PORTS'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in sockets])
PORTS
  )
  mungekey --create --keyfile="$dir/munge.key"
  launch munged munged --foreground --force --socket="$dir/munge.socket" --key-file="$dir/munge.key" \
    --pid-file="$dir/munged.own.pid" --seed-file="$dir/munge.seed" --log-file="$dir/log/munged"
  {
    cat <<CONF
ClusterName=trainyard
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/slurmctld.own.pid
SlurmdPidFile=$dir/slurmd.%n.own.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
KillWait=5
MessageTimeout=10
MailProg=/bin/true
CONF
    for i in "${!nodes[@]}"; do
      echo "NodeName=${nodes[$i]} NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=${ports[$((i + 1))]} CPUs=2 RealMemory=512 Gres=gpu:2"
    done
    echo "PartitionName=main Nodes=$(IFS=,; echo "${nodes[*]}") Default=YES MaxTime=INFINITE State=UP"
  } >"$dir/slurm.conf"
  # Slurm counts only GPUs that are files.
  touch "$dir/gpu0" "$dir/gpu1"
  echo "Name=gpu File=$dir/gpu[0-1]" >"$dir/gres.conf"
  echo "export SLURM_CONF=$dir/slurm.conf" >"$dir/environment"
  wait_for munged test -S "$dir/munge.socket"
  start_controller
  for node in "${nodes[@]}"; do
    mkdir -p "$dir/spool.$node"
    launch "slurmd.$node" slurmd -D -N "$node" -f "$dir/slurm.conf"
  done
  wait_for "an idle node" all_idle
}

case $verb in
  start)
    trap 'status=$?; [ $status = 0 ] || "$0" stop "$dir"' EXIT
    start
    ;;
  stop)
    # All are told at once, and then waited for.
    for pid in "$dir"/*.pid; do
      case $pid in *.own.pid | *'*'*) ;; *) kill -TERM "$(cat "$pid")" 2>/dev/null || true ;; esac
    done
    for node in "${nodes[@]}"; do finish "slurmd.$node"; done
    end_steps
    finish slurmctld
    finish munged
    ;;
  stop-controller) finish slurmctld ;;
  start-controller) start_controller ;;
  *) usage ;;
esac
