#!/usr/bin/env bash
# Every benchmark, one after the other; each prints a table and skips the peers that are not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${BIN:?the folder of the binaries}"
for bench in tests/bench/bench_*.py; do
  printf '\n== %s\n' "$(basename "$bench" .py)"
  /usr/bin/python3 "$bench" --bin "$BIN"
done
