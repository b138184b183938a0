"""The settings under which PyTorch is fastest on a CPU, for all benchmarks that compare with it."""
import os

OPENBLAS = "/usr/lib/x86_64-linux-gnu/openblas-{}"
# By default glibc maps each large block again and unmaps it when it is freed, so that every step takes page faults for
# all of its activations. With these settings freed memory stays with the process.
KEPT_MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4294967296:"
                                 "glibc.malloc.top_pad=268435456"}


def openblas(threads):
    """Returns the folder of the OpenBLAS for this number of threads, or None."""
    folder = OPENBLAS.format("pthread" if threads == 1 else "openmp")
    return folder if os.path.exists(os.path.join(folder, "libblas.so.3")) else None


def environment(threads, extra):
    """Returns the environment of a process with these threads: ours, `extra`, and OpenBLAS if installed."""
    variables = {**os.environ, **extra, "OMP_NUM_THREADS": str(threads)}
    if openblas(threads):
        variables["LD_LIBRARY_PATH"] = openblas(threads)
    return variables
