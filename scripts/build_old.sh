#!/usr/bin/env bash
# Builds server, worker, supervisor and client of an old commit into build/old/COMMIT/bin, once.
#
#   build_old.sh COMMIT
#
# Tests run them beside those of today. The trainer is left out: it is most of the build, and ranks talk to an old
# supervisor only through the run directory. Fails with 3 where the repository does not have the commit, as a shallow
# clone does not.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=${1:?which commit?}
root=build/old/$commit
programs="trainyard trainyard-server trainyard-worker trainyard-supervisor"

if [ -e "$root/done" ]; then exit 0; fi
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "the commit $commit is not in this clone" >&2
  exit 3
fi
rm -rf "$root"
mkdir -p "$root/source"
git archive "$commit" | tar -x -C "$root/source"
(cd "$root/source" && cmake --preset release -B "../build" -DTRAINYARD_BUILD_TESTS=OFF -DTRAINYARD_CUDA=OFF) \
  > "$root/configure.log"
# shellcheck disable=SC2086
cmake --build "$root/build" -j"${JOBS:-$(nproc)}" --target $programs > "$root/build.log"
mkdir -p "$root/bin"
for program in $programs; do cp "$root/build/bin/$program" "$root/bin/$program"; done
rm -rf "$root/build" "$root/source"
touch "$root/done"
