#!/bin/bash
# Runs in the machine that tests/isolation/boot.sh boots, once for each boot: installs the packages, lets two users work,
# kills the server, reboots and upgrades in the middle of a job, removes and purges. Prints a line for each check, and ends
# with the number of those that failed.
set -u
export HOME=/root DEBIAN_FRONTEND=noninteractive
notes=/root/install-test; mkdir -p $notes
failed=$(cat $notes/failed 2>/dev/null || echo 0)
check() {  # check NAME COMMAND...: the command must succeed
  local name=$1; shift
  if "$@" >/tmp/check.out 2>&1; then echo "ok      $name"; else
    echo "FAILED  $name: $* said: $(tail -n 5 /tmp/check.out)"; failed=$((failed + 1)); echo $failed > $notes/failed; fi
}
until_true() {  # waits for another program, for two minutes at most
  local end=$((SECONDS + 120))
  while ! "$@"; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.1; done
}
as() { local user=$1; shift; (cd "/home/$user" && runuser -u "$user" -- env HOME="/home/$user" USER="$user" "$@"); }
now() { date +%s%N; }
seconds() { awk "BEGIN {printf \"%.1f\", ($2 - $1) / 1e9}"; }
worker_is_active() { trainyard workers ls 2>/dev/null | grep -q ' ACTIVE '; }
field() { as anna trainyard show "$1" -o json | python3 -c "import json,sys; j=json.load(sys.stdin); print($2)"; }
step_of() { field "$1" "int(j.get('progress',{}).get('step',0))"; }
beyond() { [ "$(step_of "$1")" -gt "$2" ]; }
give_up() {
  echo "FAILED  $1"
  journalctl --no-pager -u trainyard-server -u trainyard-worker -u trainyard-jobs | tail -n 40
  exit 100
}
attempt_of() { field "$1" "int(j.get('attempt', 0))"; }
attempts_are() { [ "$(attempt_of "$1")" = "$2" ]; }
history() {
  as anna trainyard show "$1" --events 2>&1 | grep -v 'CHECKPOINT_' | tail -n 20
  journalctl --no-pager -b -o short-monotonic _PID=1 | grep -i trainyard | tail -n 40
}
# Each step of the curve must be there once, from the first to the last that is known to have been made.
whole_curve() {
  local step; step=$(step_of "$1")
  as anna trainyard metrics "$1" --metric train.loss -o csv | python3 -c '
import csv, sys
steps = [int(row["step"]) for row in csv.DictReader(sys.stdin)]
assert len(steps) >= int(sys.argv[1]), (len(steps), sys.argv[1])
assert steps == list(range(1, len(steps) + 1)), (len(steps), steps[:3], steps[-3:])' "$step"
}

first_boot() {
  local begin; begin=$(now)
  dpkg -i /inside/one/*.deb > /tmp/dpkg.out 2>&1 || { cat /tmp/dpkg.out; give_up "the packages cannot be installed"; }
  echo "figure  dpkg installed the packages in $(seconds "$begin" "$(now)") s"
  until_true worker_is_active || give_up "no worker came: $(trainyard workers ls 2>&1)"
  useradd -m anna; useradd -m -G trainyard-admin bert; chmod 700 /home/anna /home/bert
  local job; job=$(as anna trainyard submit -q -o name /usr/share/doc/trainyard/examples/mlp-glyphs.yaml)
  local submitted; submitted=$(now)
  as anna trainyard wait "$job" >/dev/null 2>&1
  local ended; ended=$(now)
  check "the first job ends well" test "$(field "$job" "j['state']")" = JOB_STATE_SUCCEEDED
  echo "figure  from bare packages to the end of the first job: $(seconds "$begin" "$ended") s, of which the job took $(seconds "$submitted" "$ended") s"
  check "the journal finds entries by their fields" sh -c 'journalctl -q --no-pager -t trainyard-worker TRAINYARD_ATTEMPT=jobs/1/attempts/1 | grep -q begun'
  check "the server is enabled" systemctl is-enabled trainyard-server
  check "the worker is enabled" systemctl is-enabled trainyard-worker
  check "the server says what it does" sh -c 'systemctl show -p StatusText trainyard-server | grep -q "listening on unix:/run/trainyard/trainyard.sock"'
  check "the server has a watchdog" sh -c 'systemctl show -p WatchdogUSec trainyard-server | grep -q "=2min"'
  local exposure; exposure=$(systemd-analyze security --no-pager trainyard-server | sed -n 's/.*Overall exposure level for .*: \([0-9.]*\).*/\1/p')
  echo "figure  systemd-analyze security trainyard-server: $exposure"
  check "the server is exposed little" awk "BEGIN {exit !(\"$exposure\" != \"\" && $exposure <= 2.0)}"
  check "the state is closed" test "$(stat -c '%U %a' /var/lib/trainyard/server)" = "trainyard 700"
  check "a member of the group is administrator" sh -c "runuser -u bert -- trainyard whoami | grep -q admin"
  check "somebody else is not" sh -c "! runuser -u anna -- trainyard whoami | grep -q admin"
  check "a program runs as who submitted it" test "$(as bert trainyard run -q --devices 1 -- id -un 2>/dev/null)" = bert
  check "each sees whose the jobs are" sh -c "runuser -u anna -- trainyard ls -a --all-users -o json | grep -q bert || runuser -u anna -- trainyard ls -a -o json | grep -q bert"
  check "there are manual pages" test -s /usr/share/man/man1/trainyard-submit.1.gz
  check "there are completions" sh -c 'bash -n /usr/share/bash-completion/completions/trainyard'
  check "Python finds its module" python3 -c 'import trainyard'

  # A job that is still running after an upgrade, however long that takes here.
  job=$(as anna trainyard submit -q -o name /usr/share/doc/trainyard/examples/mlp-glyphs.yaml --set train.epochs=100000 --set 'schedule=constant' --set checkpoint.every='20 steps' 2>/tmp/err) || give_up "$(cat /tmp/err)"
  echo "$job" > $notes/job
  until_true beyond "$job" 30 || give_up "the job does not run: $(as anna trainyard show "$job")"
  local trainer; trainer=$(pgrep -n -f trainyard-trainer)
  systemctl kill -s KILL --kill-whom=main trainyard-server
  local killed; killed=$(now)
  until_true sh -c 'runuser -u anna -- trainyard ls >/dev/null 2>&1'
  echo "figure  the server answered $(seconds "$killed" "$(now)") s after it was killed"
  check "the job goes on without the server" kill -0 "$trainer"
  local step; step=$(step_of "$job")
  check "its steps come to the new server" until_true beyond "$job" "$step"
  check "it is the same attempt" attempts_are "$job" 1
  step_of "$job" > $notes/step
  echo 2 > $notes/boot
  [ "$failed" = 0 ] || exit "$failed"
  exit 88
}

second_boot() {
  local job; job=$(cat $notes/job)
  until_true worker_is_active || give_up "no worker came after the reboot: $(trainyard workers ls 2>&1)"
  check "the job goes on after a reboot" until_true attempts_are "$job" 2
  check "its steps come after that" until_true beyond "$job" "$(($(step_of "$job") + 20))"
  check "no step is lost or doubled by the reboot" whole_curve "$job"

  local trainer; trainer=$(pgrep -n -f trainyard-trainer)
  # Asks all the time, and notes the longest time without an answer.
  cat > /tmp/gap.py <<'P'
import socket, sys, time
last, longest = time.monotonic(), 0.0
while True:
    peer = socket.socket(socket.AF_UNIX)
    try:
        peer.settimeout(1)
        peer.connect("/run/trainyard/trainyard.sock")
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        if peer.recv(9):
            longest = max(longest, time.monotonic() - last)
            last = time.monotonic()
            open("/tmp/gap", "w").write("%.1f" % longest)
    except OSError:
        pass
    peer.close()
    time.sleep(0.02)
P
  python3 /tmp/gap.py & local asker=$!
  local server; server=$(systemctl show -p MainPID --value trainyard-server)
  local step; step=$(step_of "$job")
  local begin; begin=$(now)
  dpkg -i /inside/two/*.deb > /tmp/dpkg.out 2>&1 || { cat /tmp/dpkg.out; give_up "the packages cannot be upgraded"; }
  echo "figure  dpkg upgraded the packages in $(seconds "$begin" "$(now)") s"
  check "the new version is installed" sh -c "dpkg-query -W -f '\${Version}' trainyard-server | grep -q later"
  check "the server was restarted" test "$server" != "$(systemctl show -p MainPID --value trainyard-server)"
  until_true worker_is_active || give_up "no worker came after the upgrade"
  check "the same trainer goes on" kill -0 "$trainer"
  check "its steps come" until_true beyond "$job" "$step"
  kill $asker; wait $asker 2>/dev/null
  echo "figure  the server did not answer for $(cat /tmp/gap) s in the upgrade"
  check "it is still the same attempt" attempts_are "$job" 2
  [ "$failed" = 0 ] || history "$job"
  check "no step is lost or doubled by the upgrade" whole_curve "$job"
  check "the job can be cancelled" as anna trainyard cancel "$job"

  # A command that finds the socket starts the server again, so an administrator stops the socket.
  systemctl stop trainyard-server.socket
  as anna timeout 20 trainyard ls >/dev/null 2>&1
  check "a server that was stopped stays so" sh -c '! systemctl is-active trainyard-server trainyard-server.socket'
  systemctl start trainyard-server
  until_true worker_is_active || give_up "no worker came after the server was started again"

  # Removal, with a job that runs.
  as anna trainyard submit -q --devices 1 -- sleep 1000 2>/dev/null
  until_true pgrep -u anna sleep >/dev/null
  check "the packages can be removed" dpkg --remove trainyard trainyard-server trainyard-worker python3-trainyard
  check "no daemon runs after that" sh -c '! pgrep trainyard'
  check "no job runs after that" sh -c '! pgrep -u anna sleep'
  check "the state stays" test -s /var/lib/trainyard/server/trainyard.db
  check "the settings stay" test -s /etc/trainyard/server.yaml
  check "the packages can be purged" dpkg --purge trainyard trainyard-server trainyard-worker python3-trainyard
  check "state and settings are gone" sh -c '! ls -d /var/lib/trainyard /etc/trainyard 2>/dev/null'
  check "no unit stays" sh -c '! systemctl list-unit-files --no-pager | grep trainyard'
  echo "$failed checks failed"
  exit "$failed"
}

if [ "$(cat $notes/boot 2>/dev/null)" = 2 ]; then second_boot; else first_boot; fi
