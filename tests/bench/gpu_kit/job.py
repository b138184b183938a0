"""Real jobs on the GPU of this machine, for the GPU kit: job.py service|staged|killed --bin DIR --state DIR --logs DIR

service  A job goes through server, worker and supervisor, over a tail batch in each epoch and an evaluation.
staged   Two ranks share the GPU and exchange gradients by way of the host, under a supervisor without a server.
killed   The same, and one of the two is killed: the attempt fails and says so; the next one goes on from a checkpoint.

With $TRAINYARD_NVML in the environment, the worker takes the GPUs of that library, and the trainer of the emulated
device if there is one.
"""
import argparse
import glob
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import run_dirs

PATIENCE = 120
EMULATED_TRAINER = "trainyard-emulated-trainer"


class Failure(Exception):
    pass


def expect(is_true, what):
    if not is_true:
        raise Failure(what)


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        expect(time.monotonic() < end, f"{what}: not within {PATIENCE} s")
        time.sleep(0.05)


def is_emulated(arguments):
    return os.path.exists(os.path.join(arguments.bin, EMULATED_TRAINER + "-cuda"))


# The numbers of rows of training, evaluation and batch: each epoch and each evaluation ends with a smaller batch.
ROWS = (4040, 1000, 128)
EMULATED_ROWS = (40, 24, 16)
MODEL = {"convnet": {"channels": [8, 8], "batch_norm": True}}
SPEC = """name: tail
model: {{convnet: {{channels: [8, 8], batch_norm: true}}}}
data: {{dataset: glyphs, train_size: {0}, test_size: {1}}}
train: {{epochs: 2, global_batch: {2}, seed: 3, precision: bf16}}
optimizer: {{sgd: {{lr: 0.05}}}}
evaluate: {{every: 1 epoch}}
devices: {{type: {3}, count: 1}}
"""


def rows_of(arguments):
    return EMULATED_ROWS if is_emulated(arguments) else ROWS


def resolved_spec(arguments, steps):
    """Returns a spec for a run directory, which writes a checkpoint every 10 steps."""
    train, test, batch = rows_of(arguments)
    spec = run_dirs.spec_of(MODEL, {"dataset": "glyphs", "train_size": train, "test_size": test}, batch, steps,
                            replicas=2, precision="PRECISION_BF16")
    spec["checkpoint"] = {"every": {"steps": 10}}
    return spec


class Service:
    """A server and a worker in a folder of their own."""

    def __init__(self, arguments):
        self.bin, self.state = arguments.bin, arguments.state
        os.makedirs(self.state)
        # The path of a socket may have 107 bytes, so it does not lie in the folder.
        self.socket_dir = tempfile.mkdtemp(prefix="trainyard-")
        self.address = f"unix:{self.socket_dir}/server.sock"
        worker = ["--name", "alpha", "--cpu_devices", "1", "--threads_per_device", "1"]
        if os.environ.get("TRAINYARD_NVML"):
            worker += ["--nvml", os.environ["TRAINYARD_NVML"]]
        if is_emulated(arguments):
            worker += ["--trainer", os.path.join(self.bin, EMULATED_TRAINER)]
        self.processes = [
            self.start("trainyard-server", "--listen", self.address, "--state_dir", os.path.join(self.state, "server")),
            self.start("trainyard-worker", "--server", self.address, "--state_dir", os.path.join(self.state, "worker"),
                       *worker)]

    def start(self, name, *flags):
        with open(os.path.join(self.state, name + ".log"), "wb") as log:
            return subprocess.Popen([os.path.join(self.bin, name), *flags], stdout=log, stderr=log)

    def run(self, *words):
        return subprocess.run([os.path.join(self.bin, "trainyard"), "--server", self.address, *words],
                              capture_output=True, text=True, timeout=PATIENCE)

    def ask(self, *words):
        done = self.run(*words)
        print(f"$ trainyard {' '.join(words)}\n{done.stdout}{done.stderr}", flush=True)
        return done

    def gpu_type(self):
        """Returns the type of the first GPU, or an empty text as long as the worker has not registered."""
        for process in self.processes:
            expect(process.poll() is None, f"{os.path.basename(process.args[0])} ended: its log tells why")
        done = self.run("devices", "ls", "-o", "json")
        types = [device["type"] for device in json.loads(done.stdout)] if done.returncode == 0 else []
        gpus = [name for name in types if name != "cpu"]
        expect(gpus or not types, "the worker found no GPU: its log tells why")
        return gpus[0] if gpus else ""

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(self.socket_dir, ignore_errors=True)


def run_service(arguments):
    service = Service(arguments)
    try:
        wait_for(service.gpu_type, "the worker's GPU in the pool")
        path = os.path.join(arguments.state, "spec.yaml")
        with open(path, "w") as file:
            file.write(SPEC.format(*rows_of(arguments), service.gpu_type()))
        # Its exit status tells how the job ended.
        followed = service.ask("submit", path, "--follow")
        expect(followed.returncode in (0, 8), "the job was not accepted")
        job = json.loads(service.ask("show", "last", "-o", "json").stdout)
        log = service.ask("logs", "last").stdout
        expect(followed.returncode == 0 and job["state"] == "JOB_STATE_SUCCEEDED", f"the job is {job['state']}")
        expect(job.get("retries", 0) == 0, f"the job needed {job.get('retries')} retries")
        evaluations = len(re.findall(r" info: evaluated ", log))
        expect(evaluations == 2, f"{evaluations} evaluations; expected 2")
        step, loss = job["progress"]["step"], job["final_metrics"]["test.loss"]
        expect(math.isfinite(float(loss)), f"the loss is {loss}")
        return f"{service.gpu_type()}: {step} steps, 2 evaluations, no retry; the loss is {float(loss):.4f}"
    finally:
        service.stop()


def start_gang(arguments, name, steps, resume_from=""):
    """Starts two ranks on the first GPU. Returns the supervisor's process and the run directory."""
    path = os.path.join(arguments.state, name)
    ranks = [{"rank": r, "local_rank": r, "device": "", "device_type": "gpu", "cpus": [], "threads": 1}
             for r in range(2)]
    run_dirs.write_run_dir(path, resolved_spec(arguments, steps), cpus=[[], []], ranks=ranks, backend="cuda",
                           resume_from=resume_from)
    with open(os.path.join(path, "lease"), "w") as file:
        file.write("0\n")
    flags = []
    if is_emulated(arguments):
        flags = ["--trainer", os.path.join(arguments.bin, EMULATED_TRAINER + "-cuda")]
    return run_dirs.start(arguments.bin, path, *flags), path


def end_of(process, path):
    process.wait(timeout=PATIENCE)
    with open(os.path.join(path, "exit.json")) as file:
        return json.load(file)


def run_staged(arguments):
    steps = 4 if is_emulated(arguments) else 200
    process, path = start_gang(arguments, "staged", steps)
    end = end_of(process, path)
    expect(end["outcome"] == "succeeded", f"the attempt ended with {end}")
    losses = run_dirs.series(path, "train.loss")
    expect(losses[-1][0] == steps, f"the last step is {losses[-1][0]}, of {steps}")
    return f"{steps} steps on two ranks of one GPU; the last loss is {losses[-1][1]:.4f}"


def newest_checkpoint(path):
    """Returns the folder of the newest checkpoint, or an empty text. One that is still being written ends in .tmp."""
    folders = glob.glob(os.path.join(path, "checkpoints", "step-*"))
    steps = [int(step) for step in (folder.rsplit("-", 1)[1] for folder in folders) if step.isdigit()]
    return os.path.join(path, "checkpoints", f"step-{max(steps)}") if steps else ""


def run_killed(arguments):
    # There are more steps than the device does before the kill.
    process, path = start_gang(arguments, "killed", 100_000)
    wait_for(lambda: newest_checkpoint(path) or process.poll() is not None, "a checkpoint")
    expect(process.poll() is None, f"the attempt ended early: {run_dirs.first_error(path)}")
    with open(os.path.join(path, "supervisor.json")) as file:
        victim = next(rank["pid"] for rank in json.load(file)["ranks"] if rank["rank"] == 1)
    os.kill(victim, signal.SIGKILL)
    end = end_of(process, path)
    expect(end["outcome"] != "succeeded" and end.get("failed_rank", -1) == 1, f"after a kill of rank 1: {end}")
    checkpoint = newest_checkpoint(path)
    step = int(checkpoint.rsplit("-", 1)[1])
    process, again = start_gang(arguments, "again", step + 2, resume_from=os.path.abspath(checkpoint))
    end = end_of(process, again)
    expect(end["outcome"] == "succeeded", f"the next attempt ended with {end}")
    first = run_dirs.series(again, "train.loss")[0][0]
    expect(first == step + 1, f"the next attempt began with step {first}; the checkpoint is of step {step}")
    return f"rank 1 was killed; the next attempt went on from step {step}"


def keep_logs(arguments):
    """Copies logs and records, which are small, for the archive of the part."""
    for pattern in ("**/*.log", "**/log", "**/exit.json", "**/result.json", "**/metrics.jsonl", "**/assignment.json"):
        for path in glob.glob(os.path.join(arguments.state, pattern), recursive=True):
            target = os.path.join(arguments.logs, os.path.relpath(path, arguments.state))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = {"service": run_service, "staged": run_staged, "killed": run_killed}
    parser.add_argument("task", choices=tasks)
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--state", required=True, help="folder for what the programs write; it must not exist")
    parser.add_argument("--logs", required=True, help="folder in which logs and records are kept")
    arguments = parser.parse_args()
    try:
        print(tasks[arguments.task](arguments))
    except (Failure, OSError, ValueError, LookupError, subprocess.TimeoutExpired) as error:
        sys.exit(f"{arguments.task}: {error}")
    finally:
        keep_logs(arguments)


if __name__ == "__main__":
    main()
