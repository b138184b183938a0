"""Runs a server and its workers, and restarts them; watches what they take.

Workers `a` and `b` train, and a gang may span both. Worker `n` has a trainer that has nothing to do, so that thousands of
jobs go through the whole machinery in little time.
"""
import collections
import os
import shutil
import signal
import subprocess
import time

from trend import Sample

NATIVE, NOOP = ("a", "b"), "n"
NATIVE_DEVICES, NOOP_DEVICES = 2, 4
# What a release consists of, as far as the lab needs it.
PROGRAMS = ("trainyard", "trainyard-server", "trainyard-worker", "trainyard-supervisor", "trainyard-trainer", "noop_trainer")
# A process that has not come up or ended by then is in trouble.
PATIENCE_S = 60


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def status(pid):
    """Anonymous memory in bytes, which a leak fills, and threads."""
    fields = {}
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            name, _, value = line.partition(":")
            fields[name] = value.split()
    return int(fields["RssAnon"][0]) * 1024, int(fields["Threads"][0])


def thread_names(pid):
    """How many threads there are of each name."""
    names = collections.Counter()
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm") as file:
                names[file.read().strip()] += 1
        except (FileNotFoundError, ProcessLookupError):
            pass  # it ended meanwhile
    return names


def folder_bytes(folder):
    """What the files of a folder take on the disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                pass  # it was deleted meanwhile
    return total


def processes_of(folder):
    """The processes whose command line names the folder."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if any(folder in word for word in words) and int(entry) != os.getpid():
            found.append((int(entry), " ".join(words[:4])))
    return found


class Daemon:
    """A process that is restarted on the same state."""

    def __init__(self, name, words, state, log):
        self.name, self.words, self.state, self.log = name, words, state, log
        self.lives = 0
        self.start()

    def start(self):
        self.lives += 1
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.first_threads = None

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=PATIENCE_S)

    def new_threads(self):
        """The names of the threads that this life had not at its first sample, with their number."""
        names = thread_names(self.process.pid) - (self.first_threads or collections.Counter())
        return ", ".join(f"{count} {name}" for name, count in sorted(names.items())) or "none"

    def runs_replaced_program(self):
        """True if an upgrade has put another file where the program of this process was."""
        return os.readlink(f"/proc/{self.process.pid}/exe").endswith(" (deleted)")

    def sample(self, seconds, jobs):
        pid = self.process.pid
        memory, threads = status(pid)
        self.first_threads = self.first_threads or thread_names(pid)
        return Sample(seconds, jobs, self.name, self.lives, memory, descriptors(pid), threads, folder_bytes(self.state))


class Lab:
    """The lab: use it as a context, so that everything ends with it."""

    def __init__(self, binary_dir, scratch):
        self.binary_dir, self.scratch = binary_dir, scratch
        self.address = f"unix:{scratch}/server.sock"
        self.daemons = {}
        os.mkdir(self.path("bin"))

    def __enter__(self):
        self.install()
        self.daemons["server"] = Daemon("server", [self.program("trainyard-server"), "--state_dir", self.path("server"),
                                                   "--listen", self.address], self.path("server"), self.path("server.log"))
        self.await_server()
        for name in NATIVE:
            self.add_worker(name, "native", NATIVE_DEVICES)
        self.add_worker(NOOP, "noop", NOOP_DEVICES, "--trainer", self.program("noop_trainer"))
        return self

    def __exit__(self, *_):
        for daemon in reversed(list(self.daemons.values())):
            if daemon.process.poll() is None:
                daemon.stop(signal.SIGKILL)
        # Supervisors outlive their daemons on purpose, and ranks end with them.
        for pid, words in processes_of(self.scratch):
            if "trainyard-supervisor" in words:
                os.kill(pid, signal.SIGKILL)

    def install(self):
        """Puts new files where the programs are started from, as the package of a new release does. What runs keeps its old
        file, which has no name any more; what an old daemon starts from now on is new."""
        for name in PROGRAMS:
            shutil.copy2(os.path.join(self.binary_dir, name), self.program(f"{name}.new"))
            os.replace(self.program(f"{name}.new"), self.program(name))

    def program(self, name):
        return self.path(os.path.join("bin", name))

    def path(self, name):
        return os.path.join(self.scratch, name)

    def add_worker(self, name, kind, devices, *more):
        state = self.path(f"worker-{name}")
        self.daemons[name] = Daemon(name, [
            self.program("trainyard-worker"), "--server", self.address, "--state_dir", state, "--name", name, "--label",
            f"kind={kind}", "--cpu_devices", str(devices), "--threads_per_device", "1", "--share_cpus", *more
        ], state, self.path(f"worker-{name}.log"))

    def client(self, *words, timeout=PATIENCE_S):
        """`trainyard WORDS`; returns its exit code and output."""
        done = subprocess.run([self.program("trainyard"), "--server", self.address, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, env={**os.environ, "NO_COLOR": "1"})
        return done.returncode, done.stdout, done.stderr

    def follow(self, *words):
        """A client that runs until it is ended."""
        return subprocess.Popen([self.program("trainyard"), "--server", self.address, *words], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def await_server(self):
        until = time.monotonic() + PATIENCE_S
        while self.client("ls", "-o", "name")[0] != 0:
            if time.monotonic() > until:
                raise RuntimeError("the server does not answer; see " + self.path("server.log"))
            time.sleep(0.05)

    def restart(self, name, how):
        self.daemons[name].stop(how)
        self.daemons[name].start()
        if name == "server":
            self.await_server()

    def died(self):
        """The daemons that ended by themselves."""
        return [d.name for d in self.daemons.values() if d.process.poll() is not None]
