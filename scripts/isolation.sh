#!/usr/bin/env bash
# Tests control groups, sandboxes and two users with the real units, in a Debian 12 under user-mode Linux. BIN is the folder
# of the programs. It is skipped, visibly, where that cannot start.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/build/release/bin}
work=${WORK:-$root/build/isolation}
programs=(trainyard trainyard-server trainyard-worker trainyard-supervisor trainyard-program trainyard-trainer)
files=()
for program in "${programs[@]}"; do
  [ -x "$bin/$program" ] && files+=("$bin/$program")
done
status=0
"$root/tests/isolation/boot.sh" "$work" "$root/tests/isolation/inside.sh" "${files[@]}" "$root"/deploy/systemd/*.service "$root"/deploy/systemd/*.socket "$root"/deploy/config/*.yaml || status=$?
[ "$status" = 77 ] && exit 0
exit "$status"
