#!/usr/bin/env bash
# Tests and measures Trainyard on a GPU machine, part by part, in calls of less than ten minutes. It is run.sh of the
# folder that scripts/gpu_bundle.sh makes: it unpacks the programs, finds the libraries of CUDA and a Python, and starts
# the kit (bench/gpu_kit/kit.py), whose flags it takes.
# usage: run.sh [--list] [--part NAME]... [--from FOLDER] [--seconds 570] [OUT]    OUT: $OUT, or gpu_results
#   PYTHON=python3    the Python to use; without it the first that has PyTorch, or any
set -uo pipefail
bundle=$(cd "$(dirname "$0")" && pwd)
begin=$(date +%s)

# The Python that has PyTorch, or any.
python=
for candidate in "${PYTHON:-}" python3 python /usr/bin/python3 /opt/conda/bin/python; do
  [ -n "$candidate" ] && command -v "$candidate" >/dev/null || continue
  [ -n "$python" ] || python=$candidate
  if [ -n "${PYTHON:-}" ] || timeout 60 "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "run.sh: there is no Python 3 on this machine, or \$PYTHON names none" >&2
  exit 2
fi

work=$(mktemp -d)
kit=
# The kit saves what it has when it is asked to stop.
stop() { [ -z "$kit" ] || kill -TERM "$kit"; }
trap stop TERM INT
trap 'rm -rf "$work"' EXIT
programs=$bundle/programs
if [ ! -d "$programs" ]; then
  programs=$work
  # If xz is missing, Python unpacks the file.
  if ! tar -C "$work" -xJf "$bundle/programs.tar.xz" 2>"$work/unpack.log" &&
    ! "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' \
      "$bundle/programs.tar.xz" "$work" 2>>"$work/unpack.log"; then
    cat "$work/unpack.log" >&2
    echo "run.sh: the programs could not be unpacked" >&2
    exit 2
  fi
fi

# CUDA's libraries: those of Python's wheels first, which fit each other; of several CUDAs the newest.
libraries=$programs/lib
wheels=$("$python" - <<'PYTHON'
import glob, site, sys
folders = dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()])
found = [folder for path in folders if path for folder in glob.glob(path + "/nvidia/*/lib")]
print(":".join(sorted(found, key=lambda folder: "/cu13/" not in folder)))
PYTHON
)
[ -z "$wheels" ] || libraries=$libraries:$wheels
for folder in $(ls -d /usr/local/cuda*/lib64 /usr/local/cuda/lib 2>/dev/null | sort -rV); do
  libraries=$libraries:$folder
done
libraries=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# If the machine's C++ library is older than ours, ours is used.
if LD_LIBRARY_PATH=$libraries ldd "$programs"/bin/* 2>&1 | grep -qE 'GLIBCXX|CXXABI|libstdc.*not found'; then
  libraries=$programs/lib_old:$libraries
fi

# What this script has taken counts, too.
SECONDS_MAX=$((${SECONDS_MAX:-570} - ($(date +%s) - begin))) "$python" -B "$bundle/bench/gpu_kit/kit.py" \
  --bundle "$bundle" --programs "$programs/bin" --libraries "$libraries" "$@" &
kit=$!
wait "$kit"
status=$?
# A signal ends the first wait before the kit has ended.
while kill -0 "$kit" 2>/dev/null; do
  wait "$kit"
  status=$?
done
exit "$status"
