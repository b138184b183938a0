"""A server without workers, for benchmarks."""
import contextlib
import subprocess
import time


@contextlib.contextmanager
def serving(binaries, state, address):
    """Runs the server of this state directory until the block ends, from the moment at which it serves."""
    server = subprocess.Popen([binaries / "trainyard-server", "--state_dir", state, "--listen", address],
                              stderr=subprocess.DEVNULL)
    try:
        while not (state / "ready").exists():
            time.sleep(0.05)
        yield server
    finally:
        server.terminate()
        server.wait()
