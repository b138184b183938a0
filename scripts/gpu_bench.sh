#!/usr/bin/env bash
# Tests and measures Trainyard on a GPU machine, in one call of less than ten minutes: the tests of the CUDA backend,
# what cuDNN offers there, and the benchmarks beside PyTorch. Whatever fails, the rest runs, and what there is stays.
# It is run.sh of the folder that scripts/gpu_bundle.sh makes.
# usage: run.sh [OUT]    OUT: $OUT, or gpu_results
#   SECONDS_MAX=570      that all of it may take
#   TESTS_SECONDS=150    of these for the tests; 0: none
#   PROBE_SECONDS=60     and for the probe; 0: none. The rest is for the benchmarks
#   BENCH_ARGS=          flags of bench_gpu.py, as "--nets resnet50:256"
set -uo pipefail
bundle=$(cd "$(dirname "$0")" && pwd)
out=${1:-${OUT:-gpu_results}}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
deadline=$(($(date +%s) + ${SECONDS_MAX:-570}))
summary=$out/summary.md
printf '# GPU session of %s\n\n' "$(date -u +'%Y-%m-%d %H:%M:%S UTC')" >"$summary"

left() { echo $((deadline - $(date +%s))); }
# Runs for at most this many seconds, and never beyond the deadline; at least one.
limit() {
  local seconds=$(($(left) < $1 ? $(left) : $1))
  echo $((seconds < 1 ? 1 : seconds))
}
say() { printf '%s\n' "$*" | tee -a "$summary"; }

# The Python that has PyTorch, or any.
python=
for candidate in "${PYTHON:-}" python3 python /usr/bin/python3 /opt/conda/bin/python; do
  [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
  [ -n "$python" ] || python=$candidate
  if timeout 60 "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
    break
  fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! tar -C "$work" -xJf "$bundle/programs.tar.xz" 2>"$out/unpack.log"; then
  # If xz is missing, Python unpacks the file.
  if ! "${python:-false}" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
    "$bundle/programs.tar.xz" "$work" 2>>"$out/unpack.log"; then
    say "The programs could not be unpacked: unpack.log tells why."
    exit 1
  fi
fi

# CUDA's libraries: those of Python's wheels first, which fit each other; of several CUDAs the newest.
libraries=$work/lib
if [ -n "$python" ]; then
  wheels=$("$python" - <<'END'
import glob, site, sys
folders = dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()])
found = [folder for path in folders if path for folder in glob.glob(path + "/nvidia/*/lib")]
print(":".join(sorted(found, key=lambda folder: "/cu13/" not in folder)))
END
  )
  [ -z "$wheels" ] || libraries=$libraries:$wheels
fi
for folder in $(ls -d /usr/local/cuda*/lib64 /usr/local/cuda/lib 2>/dev/null | sort -rV); do
  libraries=$libraries:$folder
done
libraries=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# If the machine's C++ library is older than ours, ours is used.
if LD_LIBRARY_PATH=$libraries ldd "$work"/bin/* 2>&1 | grep -qE 'GLIBCXX|CXXABI|libstdc.*not found'; then
  libraries=$work/lib_old:$libraries
fi
ours() { LD_LIBRARY_PATH=$libraries "$@"; }

{
  nvidia-smi 2>&1
  nvidia-smi --query-gpu=name,driver_version,pstate,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu \
    --format=csv 2>&1
  lscpu 2>&1 | head -20
  echo "python: ${python:-none}"
  [ -z "$python" ] || timeout 60 "$python" -c 'import torch; print("PyTorch", torch.__version__, torch.version.cuda,
    torch.backends.cudnn.version(), torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")' 2>&1
  echo "libraries: $libraries"
  LD_LIBRARY_PATH=$libraries ldd "$work"/bin/* 2>&1 | grep -E '^/|not found|cudnn|cublas|nccl'
} >"$out/machine.txt"
missing=$(LD_LIBRARY_PATH=$libraries ldd "$work"/bin/* 2>&1 | grep -E 'not found' | sort -u)
if [ -n "$missing" ]; then
  say "Libraries that were not found (machine.txt has the folders):"
  say '```' && say "$missing" && say '```' && say ""
fi
sed -n 's/^/    /; 1,2p' "$bundle/CONTENTS" 2>/dev/null | head -1 >>"$summary"
nvidia-smi -L 2>/dev/null | sed 's/^/    /' >>"$summary"

failed_tests=0
run_tests() {
  # All tests run at once, because most of their time is spent on the host.
  say "" && say "## Tests" && say "" && say "| program | status | passed | failed | skipped | seconds |"
  say "|---|---|---|---|---|---|"
  test_limit=$(limit "${TESTS_SECONDS:-150}")
  mkdir -p "$out/tests"
  pids=()
  for program in "$work"/bin/*_on_gpu; do
    name=$(basename "$program")
    (
      start=$(date +%s)
      ours timeout -k 5 "$test_limit" "$program" --gtest_output="xml:$out/tests/$name.xml" >"$out/tests/$name.log" 2>&1
      echo "$? $(($(date +%s) - start))" >"$work/$name.status"
    ) &
    pids+=($!)
  done
  wait "${pids[@]}"
  for program in "$work"/bin/*_on_gpu; do
    name=$(basename "$program") log=$out/tests/$(basename "$program").log
    read -r status seconds <"$work/$name.status"
    case $status in
      124 | 137) words="out of time" ;;
      0) words=ok ;;
      *) words="exit status $status" ;;
    esac
    # On a machine with a GPU, no test may be skipped because a GPU is missing.
    if [ -e /dev/nvidiactl ] && grep -q '^\[  SKIPPED \]' "$log" && ! grep -q '^\[       OK \]' "$log"; then
      words="skipped beside a GPU" status=1
      sed 's/^/    /' "$log" | tail -1 >>"$work/skipped"
    fi
    [ "$status" = 0 ] || failed_tests=1
    count() { grep -cE "$1" "$log"; }
    say "| $name | $words | $(count '^\[       OK \]') | $(count '^\[  FAILED  \].* \(') |" \
      "$(count '^\[  SKIPPED \]') | $seconds |"
  done
  [ ! -e "$work/skipped" ] || { echo && sort -u "$work/skipped"; } >>"$summary"
  # This lists the failed tests, and in which test a program that ended early was.
  for log in "$out"/tests/*.log; do
    grep -hE '^\[  FAILED  \].* \(' "$log" | sort -u | sed 's/^/    /' >>"$summary"
    if ! grep -q '^\[  PASSED  \]\|^\[  SKIPPED \]\|FAILED TEST' "$log"; then
      printf '    %s ended in: %s\n' "$(basename "$log" .log)" "$(grep '^\[ RUN' "$log" | tail -1)" >>"$summary"
      tail -3 "$log" | sed 's/^/    /' >>"$summary"
    fi
  done
}

run_probe() {
  say "" && say "## Probe" && say ""
  probe_limit=$(limit "${PROBE_SECONDS:-60}")
  if ours timeout -k 5 20 "$work/bin/trainyard-probe" --describe "$out/device.json" >"$out/probe.log" 2>&1; then
    # The table is written line by line, so the finished lines remain when time is up.
    ours timeout -k 5 "$probe_limit" "$work/bin/trainyard-probe" >"$out/probe.md" 2>>"$out/probe.log"
    say "$(grep -c '| yes |' "$out/probe.md") graphs with a plan, $(grep -c '| no |' "$out/probe.md") without:" \
      "probe.md; this device: device.json."
  else
    say "It says: $(tail -1 "$out/probe.log")"
  fi
}

[ "${TESTS_SECONDS:-150}" = 0 ] || run_tests
[ "${PROBE_SECONDS:-60}" = 0 ] || run_probe

say "" && say "## Benchmarks" && say ""
bench_status=0
if [ -n "$python" ]; then
  bench_seconds=$(($(limit 3600) - 25))
  timeout -k 10 "$(limit 3600)" "$python" "$bundle/bench/bench_gpu.py" --bin "$work/bin" --out "$out/bench" \
    --seconds "$bench_seconds" --library_path "$libraries" ${BENCH_ARGS:-} >"$out/bench.log" 2>&1
  bench_status=$?
  if [ -s "$out/bench/tables.md" ]; then
    cat "$out/bench/tables.md" >>"$summary"
  else
    tail -3 "$out/bench.log" >>"$summary"
  fi
else
  say "There is no Python: ours alone, in bench/."
  mkdir -p "$out/bench"
  ours timeout -k 5 "$(limit 60)" "$work/bin/bench_gpu" --roofline --json "$out/bench/roofline.json" \
    >"$out/bench/roofline.txt" 2>&1
  for net in resnet50:256 gpt2:16 wrn-28-10:128 googlenet:128 convnet:64 googlenet:43 resnet18:128; do
    [ "$(left)" -gt 10 ] || break
    rates=()
    [ ! -s "$out/bench/roofline.json" ] || rates=(--rates "$out/bench/roofline.json")
    ours timeout -k 5 "$(limit 60)" "$work/bin/bench_gpu" --net "${net%:*}" --batch "${net#*:}" --resident --profile \
      "${rates[@]}" --json "$out/bench/${net/:/_}.json" >"$out/bench/${net/:/_}.txt" 2>&1 || bench_status=1
    head -4 "$out/bench/${net/:/_}.txt" >>"$summary"
  done
fi
say "" && say "Benchmarks ended with status $bench_status; $(left) of ${SECONDS_MAX:-570} seconds are left."
[ "$bench_status" = 0 ] && [ "$failed_tests" = 0 ]
