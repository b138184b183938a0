#!/usr/bin/env bash
# Builds the fuzz targets, runs each for some time, keeps what it finds, and adds the executions to the tally.
#   scripts/fuzz.sh [TARGET ...]                   all targets where none is named
# FUZZ_SECONDS is the time of each, 60 by default; 0 only merges. JOBS is how many compile, and then run, at a time.
# What a target has found lies in build/fuzz/corpus and is where the next run goes on. From it tests/fuzz/corpus gets some
# of the smallest inputs that reach code that none there has reached. An input that breaks something goes to tests/fuzz/regressions, and the script
# fails at its end.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
jobs=${JOBS:-$(nproc)}
build=build/fuzz
# Inputs are small, so that many of them are run; each format has its whole grammar in so much.
max_bytes=8192
# The tree holds so many bytes of inputs for a target, and a run adds so many inputs, none of which is larger than this.
corpus_bytes=12000
merged_inputs=32
merged_bytes=1024

if [ ! -f "$build/build.ninja" ]; then
  scripts/install_deps.sh --fuzz
  cmake --preset fuzz >/dev/null
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(basename -s .cc tests/fuzz/targets/*.cc)
fi
cmake --build --preset fuzz -j"$jobs" --target "${targets[@]/#/fuzz_}"

# Targets write files. In memory they take no time, and a killed run leaves nothing behind.
scratch=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/trainyard-fuzz.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
# gRPC, protobuf and Abseil are not instrumented, so containers that they fill look overflown. What lives as long as the
# process is not a leak that grows, and the memory of each input is measured by the target itself.
export ASAN_OPTIONS=detect_container_overflow=0:detect_leaks=0:allocator_may_return_null=1

# Fuzzes a target and merges what it has found. Returns 1 if something broke.
fuzz() {
  local target=$1
  local own=$scratch/$target corpus=$build/corpus/$target kept=tests/fuzz/corpus/$target
  local regressions=tests/fuzz/regressions/$target
  local crashes=$own/crashes merged=$own/merged log=$own/log
  local status=0 found=0 executions total size name
  mkdir -p "$corpus" "$crashes" "$kept"
  local folders=("$corpus" "$kept")
  [ ! -d "$regressions" ] || folders+=("$regressions")
  if [ "$seconds" -gt 0 ]; then
    # The target itself limits the processor time of an input; this limit is for one that waits for ever.
    "$build/bin/fuzz_$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len="$max_bytes" \
      -artifact_prefix="$crashes/" -print_final_stats=1 "${folders[@]}" >"$log" 2>&1 || status=1
    found=$(find "$crashes" -type f | wc -l)
    if [ "$status" -ne 0 ] || [ "$found" -gt 0 ]; then
      status=1
      grep -E 'check failed|ERROR:|SUMMARY:|runtime error' "$log" >&2 || tail -n 5 "$log" >&2
      mkdir -p "$regressions"
      for crash in "$crashes"/*; do
        [ ! -f "$crash" ] || mv "$crash" "$regressions/$(basename "$crash" | cut -c1-24)"
      done
    fi
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    # A run that broke ends without this number; its last line of progress has it too.
    executions=${executions:-$(grep -oE '^#[0-9]+' "$log" | tail -n 1 | tr -d '#')}
    scripts/fuzz_tally.py add "$target" "${executions:-0}" "$seconds" "$found"
    echo "$target: ${executions:-0} executions, $found broke something" >&2
  fi
  cp -r "$kept" "$merged"
  total=$(cat "$kept"/* 2>/dev/null | wc -c)
  # Counters of how often a line is passed would add ten times as many inputs.
  "$build/bin/fuzz_$target" -merge=1 -use_counters=0 -timeout=60 -max_len="$max_bytes" "$merged" "$corpus" >"$log" 2>&1 ||
    return "$status"
  while read -r size name; do
    total=$((total + size))
    [ -f "$kept/$name" ] || [ "$total" -gt "$corpus_bytes" ] || cp "$merged/$name" "$kept/${name:0:16}"
  done < <(find "$merged" -type f -size -"$merged_bytes"c -printf '%s %f\n' | sort -n -k1,1 -k2,2 | head -n "$merged_inputs")
  return "$status"
}

running=0
for target in "${targets[@]}"; do
  mkdir "$scratch/$target"
  if [ "$running" -ge "$jobs" ]; then
    wait -n || true
    running=$((running - 1))
  fi
  { fuzz "$target" || touch "$scratch/$target/failed"; } &
  running=$((running + 1))
done
wait
scripts/fuzz_tally.py report
failed=()
for target in "${targets[@]}"; do
  [ ! -f "$scratch/$target/failed" ] || failed+=("$target")
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz.sh: something broke in: ${failed[*]}; its inputs are in tests/fuzz/regressions" >&2
  exit 1
fi
