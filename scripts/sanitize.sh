#!/usr/bin/env bash
# Builds and runs the tests under sanitizers, before a release: all of them with the address and the undefined-behaviour
# sanitizer, and those of code that uses threads but not gRPC (label `threads`) with the thread sanitizer. Debian's gRPC
# is not built for the thread sanitizer, which would then report races that are none, so code that links it is not
# covered, and the second lane builds no more than its tests. The first lane has the CUDA backend where its libraries are
# installed: the CPU plays the device in many of its tests, and then runs the kernels under the sanitizers too.
# SANITIZERS="asan" runs one lane alone, and TESTS=REGEX chooses tests.
set -euo pipefail
cd "$(dirname "$0")/.."
JOBS=${JOBS:-$(nproc)}
failed=()
for preset in ${SANITIZERS:-asan tsan}; do
  cmake --preset "$preset"
  cmake --build --preset "$preset" -j"$JOBS"
  ctest --preset "$preset" -j"$JOBS" ${TESTS:+-R "$TESTS"} || failed+=("$preset")
done
if ((${#failed[@]})); then
  echo "sanitizers: ${failed[*]} failed" >&2
  exit 1
fi
echo "sanitizers: clean"
