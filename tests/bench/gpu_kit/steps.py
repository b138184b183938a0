"""A part of the GPU kit: steps that are run once, with limits, and whose results are kept from call to call."""
import json
import os
import re
import signal
import subprocess
import threading
import time

PASSED, FAILED, SKIPPED, INTERRUPTED = "passed", "failed", "skipped", "interrupted"
# A step is not begun with less time than this, unless its limit is lower.
LEAST_SECONDS = 20
# A step that was interrupted so often, each time after at least half of its limit, has failed, so that the parts
# behind it get their turn.
TRIES_MAX = 4
# A program that is asked to end has this time before it is killed.
GRACE_SECONDS = 5
WORDS_MAX = 600


def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:WORDS_MAX] if lines else "it said nothing"


def matching(pattern):
    """Returns a function that finds the lines of a log that say what matters."""
    def find(log):
        lines = [line.strip() for line in log.splitlines() if re.search(pattern, line)]
        return "; ".join(lines[:6])[:WORDS_MAX]
    return find


class Part:
    """The results of a part. `kit` has version, left(), is_stopped() and save(part)."""

    def __init__(self, name, folder, kit):
        self.name = name
        self.folder = folder
        self.kit = kit
        self.retries = False  # if true, steps that have failed are tried again
        self.lock = threading.Lock()
        self.steps = {}
        self.is_done = False
        self.is_interrupted = False
        os.makedirs(folder, exist_ok=True)
        try:
            with open(self.path("status.json")) as file:
                known = json.load(file)
            self.steps, self.is_done = known["steps"], known["is_done"]
        except (OSError, ValueError, KeyError):
            pass  # Nothing of it was run yet.

    def path(self, name):
        return os.path.join(self.folder, name)

    def file_of(self, step, ending):
        return self.path(re.sub(r"[^A-Za-z0-9.-]+", "_", step) + ending)

    def count(self, status):
        return sum(step["status"] == status for step in self.steps.values())

    def save(self):
        with open(self.path("status.json"), "w") as file:
            json.dump({"steps": self.steps, "is_done": self.is_done}, file, indent=1)
        self.kit.save(self)

    def note(self, name, status, seconds, words, tries=1):
        with self.lock:
            self.steps[name] = {"status": status, "seconds": round(seconds, 1), "words": words, "tries": tries,
                                "by": self.kit.version}
            self.save()
        print(f"{self.name}: {name}: {status} after {seconds:.0f} s: {words}", flush=True)

    def skip(self, name, why):
        """Records a step that cannot be run here."""
        if self.steps.get(name, {}).get("status") != SKIPPED:
            self.note(name, SKIPPED, 0, why)

    def has_ended(self, name):
        return self.steps.get(name, {}).get("status") in (PASSED, FAILED)

    def step(self, name, command, seconds, judge=None, resumes=False, environment=None):
        """Runs a command, unless it has passed before. Returns true if it has passed.

        `judge(log, status)` returns a status and words; without it, exit status 0 passes. A step that `resumes` goes on
        in a later call if it takes longer than `seconds`; any step does if the time of the call is up.
        """
        known = self.steps.get(name, {"status": INTERRUPTED, "tries": 0})
        if known["status"] == PASSED:
            return True
        if known["status"] in (FAILED, SKIPPED) and not self.retries:
            return False
        allowed = min(seconds, self.kit.left() - GRACE_SECONDS)
        if allowed < min(seconds, LEAST_SECONDS) or self.kit.is_stopped():
            self.is_interrupted = True
            return False
        earlier = known["tries"] if known["status"] == INTERRUPTED else 0
        begin = time.monotonic()
        status, log = self.run(command, self.file_of(name, ".log"), allowed, environment)
        taken = time.monotonic() - begin
        tries = earlier + (1 if taken >= seconds / 2 or status is not None else 0)
        if status is None:
            goes_on = (resumes or allowed < seconds or self.kit.is_stopped()) and tries < TRIES_MAX
            self.is_interrupted |= goes_on
            self.note(name, INTERRUPTED if goes_on else FAILED, taken, "out of time: " + last_words(log), tries)
            return False
        if judge is None:
            verdict, words = (PASSED if status == 0 else FAILED), last_words(log)
        else:
            verdict, words = judge(log, status)
        self.note(name, verdict, taken, words, tries)
        return verdict == PASSED

    def run(self, command, log_path, seconds, environment):
        """Returns the exit status, or None if time was up, and what the command has printed."""
        with open(log_path, "w") as log:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                           env={**os.environ, **(environment or {})}, start_new_session=True)
            except OSError as error:
                return 127, str(error)
            status = self.wait(process, time.monotonic() + seconds)
        with open(log_path, errors="replace") as log:
            return status, log.read()

    def wait(self, process, deadline):
        while time.monotonic() < deadline and not self.kit.is_stopped():
            try:
                return process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                pass
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(timeout=GRACE_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                pass
        return None

    def at_once(self, calls):
        """Runs steps at the same time: most of a test's time is spent on the host."""
        threads = [threading.Thread(target=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def render(self, title):
        state = "done" if self.is_done else "not finished: the next call goes on" if self.steps else "not begun"
        text = f"## {self.name}: {title}\n\n"
        text += f"{state}; {self.count(PASSED)} steps passed, {self.count(FAILED)} failed"
        text += f", {self.count(SKIPPED)} skipped, {self.count(INTERRUPTED)} interrupted"
        versions = sorted({step["by"] for step in self.steps.values()} - {self.kit.version})
        text += f"; some are of {', '.join(versions)}\n\n" if versions else "\n\n"
        if self.steps:
            text += "| step | status | seconds | what it says |\n|---|---|---|---|\n"
        for name, step in self.steps.items():
            words = step["words"].replace("|", "/").replace("\n", " ")
            text += f"| {name} | {step['status']} | {step['seconds']} | {words} |\n"
        for name in sorted(os.listdir(self.folder)):
            if name.endswith("tables.md"):
                with open(self.path(name)) as file:
                    text += "\n" + file.read()
        return text + "\n"
