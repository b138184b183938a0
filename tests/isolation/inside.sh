#!/bin/bash
# Runs in the machine that boot.sh boots: the real units, two users, and what control groups do for them. Prints a line for
# each check, and ends with the number of those that failed.
set -u
failed=0
check() {  # check NAME COMMAND...: the command must succeed
  local name=$1; shift
  if "$@" >/tmp/check.out 2>&1; then echo "ok      $name"; else
    echo "FAILED  $name: $* said: $(tail -n 5 /tmp/check.out)"; failed=$((failed + 1)); fi
}
until_true() {  # waits for another program, for a minute at most
  local end=$((SECONDS + 60))
  while ! "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.1; done
}
as() { local user=$1; shift; runuser -u "$user" -- env HOME="/home/$user" USER="$user" "$@"; }
export HOME=/root
contains() { grep -q -- "$2" <<<"$1" || { echo "'$2' is not in: $1"; return 1; }; }

cp /inside/trainyard* /usr/bin/ && cp /inside/*.service /inside/*.socket /etc/systemd/system/ && mkdir /etc/trainyard && cp /inside/*.yaml /etc/trainyard/
useradd --system --no-create-home trainyard; groupadd trainyard-admin; groupadd trainyard-operator; useradd -m anna; useradd -m bert; chmod 700 /home/anna /home/bert
systemctl daemon-reload
systemctl start trainyard-server trainyard-jobs trainyard-worker
if ! until_true sh -c 'trainyard workers ls 2>/dev/null | grep -q ACTIVE'; then
  echo "FAILED  no worker came: $(trainyard workers ls 2>&1)"
  journalctl --no-pager -u trainyard-server -u trainyard-jobs -u trainyard-worker | tail -n 30
  exit 1
fi
base=/sys/fs/cgroup/system.slice/trainyard-jobs.service
group_of() { ls -d $base/trainyard-*-"$1"-1 2>/dev/null; }

labels=$(trainyard workers ls -o json)
check "the worker says what it can do" contains "$labels" isolation.cgroup
check "the worker can make sandboxes" contains "$labels" isolation.sandbox

# Limits.
job=$(cd /home/anna && as anna trainyard submit -o name --devices 1 -- sleep 1000); number=${job#jobs/}
until_true sh -c "ls -d $base/trainyard-*-$number-1/rank-0 && test -s $base/trainyard-*-$number-1/rank-0/cgroup.procs" >/dev/null
group=$(group_of "$number")
check "each rank has a bound of processes" test "$(cat "$group/rank-0/pids.max")" = 32768
check "each rank has its share of the processors" grep -q '^100000 100000' "$group/rank-0/cpu.max"
check "a rank that is killed for want of memory ends as a whole" test "$(cat "$group/rank-0/memory.oom.group")" = 1
check "the owner cannot change the limits" test "$(stat -c %U "$group/rank-0/memory.max")" = root
check "the owner may move processes within the group" test "$(stat -c %U "$group/rank-0/cgroup.procs")" = anna
check "the attempt has no more processors than its ranks" grep -q '^100000 100000' "$group/cpu.max"
check "an owner who moves a rank keeps that limit" as anna sh -c "p=\$(head -n 1 $group/rank-0/cgroup.procs); echo \$p > $group/supervisor/cgroup.procs && grep -q '^100000 100000' $group/cpu.max && ! sh -c 'echo max > $group/cpu.max' && echo \$p > $group/rank-0/cgroup.procs"
check "the supervisor is in a group of its own" grep -q . "$group/supervisor/cgroup.procs"
check "the owner's limit of processes is not that of a login" as bert sh -c "! echo 1 > $group/rank-0/pids.max"
check "another user cannot kill the attempt" as bert sh -c "! echo 1 > $group/cgroup.kill"

# A restart of the daemon, with jobs that run.
pid=$(head -n 1 "$group/rank-0/cgroup.procs")
systemctl restart trainyard-worker
check "the daemon starts again beside running jobs" systemctl is-active trainyard-worker
until_true sh -c 'trainyard workers ls | grep -q ACTIVE'
check "the job goes on" kill -0 "$pid"
systemctl kill -s KILL --kill-whom=main trainyard-worker
until_true systemctl -q is-active trainyard-worker
check "it goes on after the daemon was killed, too" kill -0 "$pid"
as anna trainyard cancel "$job" >/dev/null
check "its group is removed at the end" until_true sh -c "! ls -d $base/trainyard-*-$number-1"

# Memory.
cat > /tmp/eat.py <<'P'
import os
if os.fork() == 0:
    x = bytearray(400 << 20)
os.wait()
P
# The limit is set by hand, so that it does not depend on how the memory of this machine is divided.
job=$(cd /home/anna && as anna trainyard submit -o name --devices 1 --set max_retries=3 -- sh -c 'while test ! -e /home/anna/go; do sleep 0.1; done; exec python3 /tmp/eat.py'); number=${job#jobs/}
until_true sh -c "test -s $base/trainyard-*-$number-1/rank-0/cgroup.procs"
group=$(group_of "$number"); echo $((64 << 20)) > "$group/rank-0/memory.max"; echo 0 > "$group/rank-0/memory.swap.max" 2>/dev/null
as anna touch /home/anna/go; as anna trainyard wait "$job" >/dev/null 2>&1
shown=$(as anna trainyard show "$job")
check "memory that ran out has a reason of its own" contains "$shown" OUT_OF_MEMORY
check "peak and limit are told" contains "$shown" 'used 64 MiB of 64 MiB; ask for more with resources.memory'
check "it is not tried again" contains "$shown" 'attempt  *1 on'

# Daemons.
cat > /tmp/daemons.sh <<'S'
for i in $(seq 10); do setsid sh -c 'setsid sleep 10000 & sleep 10000' & done
echo 1 > /home/anna/daemons
sleep 10000
S
job=$(cd /home/anna && as anna trainyard submit -o name --devices 1 --set max_retries=0 -- sh /tmp/daemons.sh); number=${job#jobs/}
until_true test -e /home/anna/daemons
group=$(group_of "$number")
until_true sh -c "test \$(wc -l < $group/rank-0/cgroup.procs) -ge 20"
python3 - "$group" <<'P'
import sys, time
group = sys.argv[1]
count = len(open(group + '/rank-0/cgroup.procs').read().split())
begin = time.monotonic()
open(group + '/cgroup.kill', 'w').write('1')
while 'populated 1' in open(group + '/cgroup.events').read():
    time.sleep(0.001)
took = (time.monotonic() - begin) * 1000
print('figure  cgroup.kill ended a tree of %d processes in sessions of their own in %.0f ms' % (count, took))
open('/tmp/took', 'w').write(str(took))
P
# It is some milliseconds where nothing else runs; this bound is for machines that are busy.
check "a tree of daemons is gone at once" python3 -c 'assert float(open("/tmp/took").read()) < 1000'
check "the group is removed after that" until_true sh -c "! ls -d $base/trainyard-*-$number-1"
rm -f /home/anna/daemons
job=$(cd /home/anna && as anna trainyard submit -o name --devices 1 -- sh -c 'sh /tmp/daemons.sh & until test -e /home/anna/daemons; do sleep 0.1; done; exit 0')
as anna trainyard wait "$job" >/dev/null 2>&1
check "daemons of a program that has ended are gone" sh -c '! pgrep -u anna sleep'

# Two users, and sandboxes.
as anna sh -c 'echo secret > /home/anna/secret; chmod 644 /home/anna/secret'; chmod 755 /home/anna
run_in_sandbox() { local user=$1; shift; (cd "/home/$user" && as "$user" trainyard run -q --set program.isolation=sandbox --devices 1 -- sh -c "$1") 2>&1; }
out=$(run_in_sandbox bert 'id -un; ls /home; cat /home/anna/secret; touch /etc/x; ls /dev/ubda; touch /home/bert/mine && echo written; ls /tmp | wc -l')
check "a job in a sandbox runs as its owner" contains "$out" '^bert$'
check "it sees no home but its own" contains "$out" "anna/secret': No such file\|anna/secret: No such file"
check "it cannot write to the system" contains "$out" 'Read-only file system\|Permission denied'
check "it sees no device but its own" contains "$out" "/dev/ubda'*: No such file"
check "it writes to its home" contains "$out" '^written$'
shown=$(as bert trainyard show last)
check "show tells the level" contains "$shown" 'isolation  *sandbox'

# Leftovers: a group of this worker that no run directory belongs to, and one of somebody else.
mark=$(ls /var/lib/trainyard/worker/uid >/dev/null 2>&1 && cut -d- -f1 /var/lib/trainyard/worker/uid)
mkdir "$base/trainyard-$mark-999-1" "$base/somebody-else"
setsid sleep 10000 & echo $! > "$base/trainyard-$mark-999-1/cgroup.procs"
systemctl restart trainyard-worker; until_true sh -c 'trainyard workers ls | grep -q ACTIVE'
check "leftovers are removed when the daemon starts" until_true test ! -e "$base/trainyard-$mark-999-1"
check "a group of somebody else is left alone" test -e "$base/somebody-else"

# What the levels add to the start of a program.
time_of() {
  local level=$1 begin end
  begin=$(date +%s%N)
  for _ in 1 2 3 4 5; do (cd /home/anna && as anna trainyard run -q --devices 1 $level -- true) >/dev/null 2>&1; done
  end=$(date +%s%N); echo $(( (end - begin) / 5000000 ))
}
echo "figure  trainyard run -- true took $(time_of '') ms with a control group, $(time_of '--set program.isolation=sandbox') ms in a sandbox"
echo "$failed checks failed"
exit "$failed"
