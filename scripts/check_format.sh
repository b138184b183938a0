#!/usr/bin/env bash
# Lists the sources that clang-format 14 would change, and fails if there are any. With --fix it changes them.
#   scripts/check_format.sh [--fix] [FILE ...]     all tracked sources where no file is named
set -euo pipefail
cd "$(dirname "$0")/.."

fix=
if [ "${1:-}" = "--fix" ]; then
  fix=1
  shift
fi
format=$(command -v clang-format-14 || command -v clang-format) || {
  echo "check_format.sh: clang-format is missing; scripts/install_deps.sh installs it" >&2
  exit 2
}
if ! "$format" --version | grep -q 'version 14\.'; then
  # Every version breaks lines in its own way, so another version would want to change the whole tree.
  echo "check_format.sh: clang-format 14 is needed, and $format is $("$format" --version)" >&2
  exit 2
fi

files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  mapfile -t files < <(git ls-files -- '*.cc' '*.h' '*.cu' '*.cuh' '*.inc')
fi
# A file that was deleted and not yet committed is still listed.
present=()
for file in "${files[@]}"; do
  [ ! -f "$file" ] || present+=("$file")
done
[ ${#present[@]} -gt 0 ] || exit 0

each() { printf '%s\0' "${present[@]}" | xargs -0 -n 25 -P "$(nproc)" "$format" "$@"; }
if [ -n "$fix" ]; then
  each -i
  exit
fi
changed=$(each --dry-run 2>&1 | sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: .*clang-format-violations.*/\1/p' | sort -u)
if [ -n "$changed" ]; then
  echo "clang-format would change $(wc -l <<<"$changed") of ${#present[@]} files; make format changes them:" >&2
  echo "$changed" >&2
  exit 1
fi
