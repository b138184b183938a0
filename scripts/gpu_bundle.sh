#!/usr/bin/env bash
# Puts what a GPU machine needs to test and measure Trainyard into a folder: stripped programs with the shared libraries
# that such a machine lacks, the PyTorch side of the benchmarks, descriptions of devices, and run.sh, which does it all.
# usage: gpu_bundle.sh BIN OUT PROGRAM...    programs of the folder BIN
#   XZ_PRESET=3    how hard xz packs them; 0 takes a fifth of the time and makes a larger file; none: they stay
#                  unpacked, in the folder programs, and are not stripped
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: $0 BIN OUT PROGRAM..." >&2
  exit 2
fi
bin=$1 out=$2
shift 2
source_dir=$(cd "$(dirname "$0")/.." && pwd)
mib_max=60

rm -rf "$out"
mkdir -p "$out/bench" "$out/devices"
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
mkdir -p "$unpacked/bin" "$unpacked/lib" "$unpacked/lib_old"

# These libraries come with the machine: the C library, the driver, and the libraries of PyTorch or the
# toolkit.
c_library='linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libutil'
theirs="^($c_library|libcuda|libcudart|libcudnn.*|libcublas.*|libnccl|libnv.*)[.-]"
for program in "$@"; do
  if [ "${XZ_PRESET:-3}" = none ]; then
    ln -s "$(realpath "$bin/$program")" "$unpacked/bin/$program"
    continue
  fi
  strip -o "$unpacked/bin/$program" "$bin/$program"
  while read -r name _ path _; do
    if [ -z "${path:-}" ] || [ "$path" = not ] || [[ "$(basename "$name")" =~ $theirs ]]; then
      continue
    fi
    case $name in
      # These are most likely older than the machine's own. They are used only if they are not.
      libstdc++.so* | libgcc_s.so*) folder=lib_old ;;
      *) folder=lib ;;
    esac
    [ -e "$unpacked/$folder/$name" ] || cp -L "$path" "$unpacked/$folder/$name"
  done < <(ldd "$bin/$program" 2>/dev/null) # a static program has none
done
# The files are packed one after the other, so the same kernels in several programs take their space only
# once.
if [ "${XZ_PRESET:-3}" = none ]; then
  cp -a "$unpacked" "$out/programs"
else
  tar -C "$unpacked" --sort=name --owner=0 --group=0 --mtime=@0 -cf - . |
    xz -T1 --lzma2=preset=${XZ_PRESET:-3},dict=64MiB >"$out/programs.tar.xz"
fi

cp "$source_dir"/tests/bench/{bench_gpu,gpu_tables,run_dirs,torch_step,torch_nets}.py "$out/bench/"
mkdir "$out/bench/gpu_kit"
cp "$source_dir"/tests/bench/gpu_kit/*.py "$out/bench/gpu_kit/"
cp "$source_dir"/tests/data/devices/*.json "$out/devices/"
cp "$source_dir/scripts/gpu_bench.sh" "$out/run.sh"
cat >"$out/README" <<'END'
Run `./run.sh OUT` on a machine with an NVIDIA driver, CUDA 13 libraries (cuDNN 9, cuBLASLt 13, NCCL 2), Python 3 and,
for the comparison, PyTorch. Each call takes less than ten minutes, runs the next parts, and leaves their results in the
folder OUT, summary.md first; a later call goes on from there. `./run.sh --list OUT` lists the parts, and `--part NAME`
runs one of them. SECONDS_MAX=300 ./run.sh OUT takes less time. docs/gpu_testing.md tells how to read the result.
END
{
  echo "Trainyard $(git -C "$source_dir" rev-parse --short HEAD 2>/dev/null || echo 'of no commit')"
  (cd "$unpacked" && find . -type f -printf '%s %P\n' | sort -k2)
} >"$out/CONTENTS"

bytes=$(du -sb "$out" | cut -f1)
printf '%s: %d.%d MiB\n' "$out" $((bytes >> 20)) $(((bytes & 1048575) * 10 >> 20))
if [ $((bytes >> 20)) -ge $mib_max ]; then
  echo "gpu_bundle.sh: that is more than $mib_max MiB" >&2
  exit 1
fi
