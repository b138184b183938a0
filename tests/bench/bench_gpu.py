#!/usr/bin/env python3
"""Training steps on a GPU: ours beside PyTorch and beside the card's roofline, in one run, alternating.

For each network ours stays ready in one process (bench_gpu --serve, inputs on the device) and PyTorch in another
(torch_step.py): eager, as one CUDA graph, compiled, and compiled and as one graph; with channels_last, under autocast,
with fused updates and cuDNN's own measurements. What fails is told, and takes nothing else with it. The tables and
results.json in --out are written anew after each network, so that whatever ends the run leaves what there is.
--device cpu tries all this with tiny networks, the emulated device and PyTorch on the CPU: its figures say nothing.
usage: bench_gpu.py --bin DIR [--out DIR] [--seconds 420] [--nets resnet50:256,gpt2:16] [--precision bf16]
       [--plans DIR] [--compiled no|yes|both] [--others "deterministic,call by call"] [--without_torch]
"""
import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time

import gpu_tables

HERE = os.path.dirname(os.path.abspath(__file__))
# The measurements, the most important first: a network, and whether PyTorch's is compiled.
PLAN = [("resnet50:256", False), ("gpt2:16", False), ("wrn-28-10:128", False), ("googlenet:128", False),
        ("convnet:64", False), ("googlenet:43", False), ("resnet50:256", True), ("gpt2:16", True),
        ("wrn-28-10:128", True), ("resnet18:128", False), ("googlenet:128", True), ("convnet:64", True),
        ("googlenet:43", True), ("resnet18:128", True)]
SMOKE_NETS = "smoke:4,gpt2-smoke:2"
MODES = ["eager", "graph"]
# Other forms of our program: flags of bench_gpu.
OTHERS = {"inputs from the host": [], "deterministic": ["--resident", "--deterministic"],
          "call by call": ["--resident", "--no-graph"], "one stream": ["--resident", "--no-branches"],
          "f16": ["--resident", "--precision", "f16"], "tf32": ["--resident", "--precision", "tf32"]}
# Whether PyTorch's networks are compiled, by the value of --compiled.
COMPILED = {"no": [False], "yes": [True], "both": [False, True]}
RUNS = 3
# Time limits until our program is ready, with all its plans measured, and until PyTorch is ready, or has
# compiled a form.
READY_SECONDS = 180
ANSWER_SECONDS = 60
LEAST_SECONDS = 20  # for what is worth to be started


class Server:
    """A process that answers lines, each within a time limit. After a failure it stays failed."""

    def __init__(self, command, environment, log_path):
        self.log = open(log_path, "w")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=environment)
        self.lines = queue.Queue()
        self.error = None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def expect(self, is_answer, seconds):
        """Returns the next line for which is_answer holds. If none comes in time, sets self.error and returns None."""
        end = time.monotonic() + seconds
        while self.error is None:
            try:
                line = self.lines.get(timeout=max(0.001, end - time.monotonic()))
            except queue.Empty:
                self.error = f"no answer within {seconds:.0f} s"
                break
            if line is None:
                self.error = f"ended with status {self.process.wait()}: {self.last_words()}"
            elif is_answer(line):
                return line
        self.process.kill()
        return None

    def ask(self, line, is_answer, seconds):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # Its end tells why.
        return self.expect(is_answer, seconds)

    def last_words(self):
        with open(self.log.name) as log:
            words = [line.strip() for line in log if line.strip()]
        return words[-1][:300] if words else "without a word"

    def close(self, seconds):
        """Waits for its end for at most this many seconds. Returns true if it ended well."""
        try:
            self.process.stdin.close()
            status = self.process.wait(timeout=seconds)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            status = self.process.wait()
        self.log.close()
        if status != 0 and self.error is None:
            self.error = f"ended with status {status}: {self.last_words()}"
        return self.error is None


def is_number(line):
    try:
        return float(line) > 0
    except ValueError:
        return False


class Bench:
    def __init__(self, arguments):
        self.arguments = arguments
        self.is_smoke = arguments.device == "cpu"
        self.end = time.monotonic() + arguments.seconds
        os.makedirs(arguments.out, exist_ok=True)
        self.results = {"precision": arguments.precision, "nets": {}, "failures": []}
        self.binary = os.path.join(arguments.bin, "bench_gpu_on_cpu" if self.is_smoke else "bench_gpu")
        # Our program may need libraries that PyTorch must not see.
        self.ours_environment = dict(os.environ)
        if arguments.library_path:
            self.ours_environment["LD_LIBRARY_PATH"] = arguments.library_path

    def path(self, name):
        return os.path.join(self.arguments.out, name)

    def left(self):
        return self.end - time.monotonic()

    def fail(self, what, why):
        self.results["failures"].append({"what": what, "why": why})
        print(f"failed: {what}: {why}", flush=True)

    def save(self):
        with open(self.path("results.json"), "w") as file:
            json.dump(self.results, file, indent=1)
        with open(self.path("tables.md"), "w") as file:
            file.write(gpu_tables.render(self.results))

    def run_ours(self, what, flags):
        """Returns the JSON of one call of bench_gpu, or None."""
        json_path = self.path(what.replace(" ", "_").replace(":", "_") + ".json")
        try:
            done = subprocess.run([self.binary, *flags, "--json", json_path], env=self.ours_environment, text=True,
                                  capture_output=True, timeout=self.limit(READY_SECONDS))
        except subprocess.TimeoutExpired:
            return self.fail(what, "out of time")
        with open(json_path.replace(".json", ".txt"), "w") as file:
            file.write(done.stdout + done.stderr)
        if done.returncode != 0:
            return self.fail(what, done.stderr.strip()[-300:] or f"status {done.returncode}")
        with open(json_path) as file:
            return json.load(file)

    def measure_rates(self):
        sizes = ["--copy-mib", "1", "--matrix", "32", "--nodes", "10", "--rate-seconds", "0"] if self.is_smoke else []
        rates = self.run_ours("roofline", ["--roofline", *sizes])
        if rates is not None:
            self.results["rates"] = rates["rates"]
        return rates is not None

    def flags(self, net, batch):
        flags = ["--net", net, "--batch", str(batch), "--plans", self.arguments.plans or self.path("plans")]
        flags += ["--rates", self.path("roofline.json")] if "rates" in self.results else []
        return flags + (["--steps", "2", "--runs", "1", "--profile-runs", "1", "--allow-fallbacks"] if self.is_smoke else [])

    def session(self, name, compiles):
        """Runs ours and the forms of PyTorch in turns."""
        net, batch = name.split(":")
        entry = self.results["nets"].setdefault(name, {"ours": None, "ours_ms": [], "peers": {}})
        stem = self.path(f"{net}_{batch}{'_compile' if compiles else ''}")
        # PyTorch is imported while our program compiles.
        peer = None
        if self.arguments.has_torch:
            options = {"net": net, "batch": int(batch), "precision": self.arguments.precision,
                       "device": self.arguments.device, "compiles": compiles}
            peer = Server([sys.executable, os.path.join(HERE, "torch_step.py"), json.dumps(options)], os.environ,
                          stem + "_torch.log")
        if os.path.exists(stem + ".json"):
            os.remove(stem + ".json")
        command = [self.binary, *self.flags(net, batch), "--precision", self.arguments.precision, "--resident",
                   "--serve", "--profile", "--json", stem + ".json"]
        ours = Server(command, self.ours_environment, stem + ".log")
        ours.expect(lambda line: line == "ready", self.limit(READY_SECONDS))
        self.ask_ours(ours, entry)
        if peer is not None:
            self.run_peer(name, peer, compiles, ours, entry)
            peer.close(self.limit(ANSWER_SECONDS))
        if not ours.close(self.limit(ANSWER_SECONDS)):
            self.fail(f"ours, {name}", ours.error)
        # There is a result even if slower kernels computed layers, which counts as a failure.
        if os.path.exists(stem + ".json"):
            with open(stem + ".json") as file:
                entry["ours"] = json.load(file)["step"]
        text = [ours.lines.get() for _ in range(ours.lines.qsize())]
        with open(stem + ".txt", "w") as file:
            file.write("\n".join(line for line in text if line is not None) + "\n")
        self.save()

    def limit(self, seconds):
        return max(1, min(seconds, self.left()))

    def ask_ours(self, ours, entry):
        if ours.error is None:
            answer = ours.ask("run", is_number, ANSWER_SECONDS)
            if answer is not None:
                entry["ours_ms"].append(float(answer))

    def run_peer(self, name, peer, compiles, ours, entry):
        def is_json(line):
            return line.startswith("{")

        def ask(line, seconds):
            answer = peer.ask(line, is_json, seconds)
            return {"error": peer.error} if answer is None else json.loads(answer)

        ready = peer.expect(is_json, self.limit(READY_SECONDS))
        if ready is not None:
            self.results["torch"] = json.loads(ready)["torch"]
        # Sequences know no channels_last.
        layouts = [""] if name.startswith("gpt2") else [",channels_last"] if compiles else [",channels_last", ""]
        for form in [mode + layout for layout in layouts for mode in MODES]:
            known_as = ("compile, " if compiles else "") + form.replace(",", ", ")
            if self.left() < LEAST_SECONDS:
                self.fail(f"PyTorch, {name}, {known_as}", "no time left")
                continue
            error = ask(f"prepare {form}", self.limit(READY_SECONDS)).get("error")
            measured = {"ms": [], "mib": 0}
            for _ in range(1 if self.is_smoke else RUNS):
                if error is None:
                    self.ask_ours(ours, entry)
                    answer = ask(f"run {form} {self.arguments.run_seconds}", ANSWER_SECONDS)
                    error = answer.get("error")
                if error is None:
                    measured["ms"].append(answer["ms"])
                    measured["mib"] = answer["mib"]
            if error is not None:
                self.fail(f"PyTorch, {name}, {known_as}", error)
            if measured["ms"]:
                entry["peers"][known_as] = measured

    def run_others(self, name):
        net, batch = name.split(":")
        entry = self.results["nets"][name]
        for form in self.arguments.others:
            flags = OTHERS[form]
            if self.left() < LEAST_SECONDS:
                return self.fail(f"ours in other forms, {name}", "no time left")
            precision = [] if "--precision" in flags else ["--precision", self.arguments.precision]
            run = self.run_ours(f"{name} {form}",
                                self.flags(net, batch) + precision + flags + ["--seconds", "0.3"])
            if run is not None:
                entry.setdefault("others", {})[form] = run["step"]
        self.save()

    def run(self):
        if not self.measure_rates():
            print("the card's rates could not be measured: the tables are without rooflines")
        wanted = self.arguments.nets.split(",") if self.arguments.nets else []
        plan = [item for item in PLAN if item[0] in wanted or not wanted]
        plan += [(name, compiles) for compiles in (False, True) for name in wanted if (name, compiles) not in PLAN]
        plan = [item for item in plan if item[1] in COMPILED[self.arguments.compiled]]
        for name, compiles in plan:
            if self.left() < LEAST_SECONDS:
                self.fail(name + (", compiled" if compiles else ""), "no time left")
            elif self.arguments.has_torch or name not in self.results["nets"]:
                self.session(name, compiles)
        for name, entry in self.results["nets"].items():
            if entry["ours"] is not None:
                self.run_others(name)
        self.save()


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--out", default="build/bench_gpu")
    parser.add_argument("--seconds", type=float, default=420, help="that all of it may take")
    parser.add_argument("--run_seconds", type=float, default=0.3, help="of one run")
    parser.add_argument("--nets", default="", help="name:batch,...; all of them where left out")
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16", "f16"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--plans", default="", help="folder that keeps the chosen plans; default: plans in --out")
    parser.add_argument("--compiled", choices=list(COMPILED), default="both", help="whether PyTorch compiles")
    parser.add_argument("--others", default=",".join(OTHERS), help="other forms of ours: " + ", ".join(OTHERS))
    parser.add_argument("--without_torch", action="store_true", help="run ours alone")
    parser.add_argument("--library_path", default="", help="LD_LIBRARY_PATH of ours alone")
    arguments = parser.parse_args()
    arguments.others = [form for form in arguments.others.split(",") if form]
    unknown = [form for form in arguments.others if form not in OTHERS]
    if unknown:
        parser.error(f"--others: there is no form {unknown[0]!r}; expected some of {', '.join(OTHERS)}")
    if arguments.device == "cuda" and not os.path.exists("/dev/nvidiactl"):
        print("SKIPPED: there is no GPU")
        return
    program = "bench_gpu_on_cpu" if arguments.device == "cpu" else "bench_gpu"
    if not os.path.exists(os.path.join(arguments.bin, program)):
        print(f"SKIPPED: {arguments.bin} has no bench_gpu: it is built with CUDA alone")
        return
    arguments.nets = arguments.nets or (SMOKE_NETS if arguments.device == "cpu" else "")
    arguments.run_seconds = 0 if arguments.device == "cpu" else arguments.run_seconds
    arguments.has_torch = not arguments.without_torch and has_torch()
    if not arguments.has_torch:
        print("without PyTorch: ours alone")
    bench = Bench(arguments)
    bench.run()
    with open(bench.path("tables.md")) as file:
        print(file.read())
    # The run has failed if our program has no result. Other failures are shown in the tables.
    sys.exit(0 if any(entry["ours"] for entry in bench.results["nets"].values()) else 1)


if __name__ == "__main__":
    main()
