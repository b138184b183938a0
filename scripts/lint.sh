#!/usr/bin/env bash
# Runs clang-tidy over the sources of a build, several at a time, and fails if it finds anything.
#   scripts/lint.sh BUILD_DIR [FILE ...]           all sources of the build where no file is named
# Set JOBS to choose how many run at a time. A header is looked at through the sources that include it.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:?usage: scripts/lint.sh BUILD_DIR [FILE ...]}
shift
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || {
  echo "lint.sh: clang-tidy is missing; scripts/install_deps.sh --lint installs it" >&2
  exit 2
}
if [ ! -f "$build/compile_commands.json" ]; then
  echo "lint.sh: there is no $build/compile_commands.json; configure the build first" >&2
  exit 2
fi

# Sources that the build compiles with the C++ compiler, and that are ours: generated code and CUDA are not.
mapfile -t sources < <(python3 - "$build/compile_commands.json" "$PWD/" "$@" <<'PYTHON'
import json, os, sys
commands, root, wanted = sys.argv[1], sys.argv[2], {os.path.abspath(name) for name in sys.argv[3:]}
files = {os.path.abspath(os.path.join(entry["directory"], entry["file"])) for entry in json.load(open(commands))}
for name in sorted(files):
    ours = name.startswith(root) and not name.startswith(root + "build/") and name.endswith(".cc")
    if ours and (not wanted or name in wanted):
        print(name[len(root):])
PYTHON
)
if [ ${#sources[@]} -eq 0 ]; then
  echo "lint.sh: none of these is a source of $build" >&2
  exit 0
fi

echo "clang-tidy over ${#sources[@]} files" >&2
# clang does not know g++'s warning flags. Its count of suppressed warnings is not useful.
printf '%s\0' "${sources[@]}" |
  xargs -0 -n 1 -P "${JOBS:-$(nproc)}" "$tidy" -p "$build" --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-unknown-warning-option 2> >(grep -v -E '^[0-9]+ warnings? (generated|treated as)|^Suppressed|^Use -header-filter' >&2)
