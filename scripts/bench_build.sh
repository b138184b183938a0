#!/usr/bin/env bash
# Measures what an incremental build costs after a change in one file: touches each FILE, builds everything again and
# prints the seconds. The compiler cache is off, since an edit would miss it.
#   scripts/bench_build.sh BUILD_DIR FILE ...
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:?usage: scripts/bench_build.sh BUILD_DIR FILE ...}
shift
export CCACHE_DISABLE=1
cmake --build "$build" >/dev/null
for file in "$@"; do
  touch "$file"
  steps=$(ninja -C "$build" -n | grep -c '^\[' || true)
  begin=$(date +%s)
  cmake --build "$build" >/dev/null
  echo "$file: $steps steps, $(($(date +%s) - begin)) s"
done
