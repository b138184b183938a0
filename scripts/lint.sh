#!/usr/bin/env bash
# Runs clang-tidy over the sources of a build, several at a time, and fails if it finds anything.
#   scripts/lint.sh BUILD_DIR [FILE ...]           all sources of the build where no file is named
# Where the build joins sources, the joined file is looked at as a whole, since its headers are then read once.
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

# The files that the build compiles with the C++ compiler and that hold our sources: sources themselves, and the files
# that join several of them. Generated code, the copies with planted bugs and CUDA sources are left out.
mapfile -t sources < <(python3 - "$build/compile_commands.json" "$PWD/" "$@" <<'PYTHON'
import json, os, re, sys
commands, root, wanted = sys.argv[1], sys.argv[2], {os.path.abspath(name) for name in sys.argv[3:]}
files = {os.path.abspath(os.path.join(entry["directory"], entry["file"])) for entry in json.load(open(commands))}
for name in sorted(files):
    joined = name.endswith(".cxx")
    parts = re.findall(r'^#include "(.*)"', open(name).read(), re.M) if joined else [name]
    is_planted = any("/planted/" in p for p in parts)
    ours = [p for p in parts if p.startswith(root) and not p.startswith(root + "build/") and p.endswith(".cc")]
    if ours and not is_planted and (not wanted or wanted.intersection(ours)):
        print(name)
PYTHON
)
if [ ${#sources[@]} -eq 0 ]; then
  echo "lint.sh: none of these is a source of $build" >&2
  exit 0
fi

echo "clang-tidy over ${#sources[@]} files" >&2
# clang knows neither g++'s warning flags nor its parameters, and a joined file includes sources. The count of suppressed
# warnings is not useful. scripts/lint has the headers that libstdc++ does not give to clang.
printf '%s\0' "${sources[@]}" |
  xargs -0 -n 1 -P "${JOBS:-$(nproc)}" "$tidy" -p "$build" --quiet --warnings-as-errors='*' \
    --checks=-bugprone-suspicious-include \
    --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument \
    --extra-arg=-isystem"$PWD/scripts/lint" \
    2> >(grep -v -E '^[0-9]+ warnings? (generated|treated as)|^Suppressed|^Use -header-filter' >&2)
