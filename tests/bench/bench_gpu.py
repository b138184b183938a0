#!/usr/bin/env python3
"""Training steps on a GPU: ours beside PyTorch and beside the card's roofline, in one run, alternating.

For each network ours stays ready in one process (bench_gpu --serve, inputs on the device) and PyTorch in another
(torch_step.py): eager, as one CUDA graph, compiled, and compiled and as one graph; with channels_last, under autocast,
with fused updates and cuDNN's own measurements. What fails is told, and takes nothing else with it. The tables and
results.json in --out are written anew after each network, so that whatever ends the run leaves what there is.
--device cpu tries all this with tiny networks, the emulated device and PyTorch on the CPU: its figures say nothing.
usage: bench_gpu.py --bin DIR [--out DIR] [--seconds 420] [--nets resnet50:256,gpt2:16] [--precision bf16]
"""
import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time

import bench_gpu_table

HERE = os.path.dirname(os.path.abspath(__file__))
# The most important ones first.
NETS = "resnet50:256,gpt2:16,wrn-28-10:128,googlenet:128,convnet:64,googlenet:43,resnet18:128"
SMOKE_NETS = "smoke:4,gpt2-smoke:2"
# Of PyTorch: what it is built as; each is asked for both modes.
PLAIN = [{"channels_last": True, "compiles": False}, {"channels_last": False, "compiles": False}]
COMPILED = [{"channels_last": True, "compiles": True}]
# Ours in other forms: flags of bench_gpu.
OTHERS = {"inputs from the host": [], "deterministic": ["--resident", "--deterministic"],
          "call by call": ["--resident", "--no-graph"], "f16": ["--resident", "--precision", "f16"],
          "tf32": ["--resident", "--precision", "tf32"]}
RUNS = 5
PEER_SECONDS = 120  # until a peer is ready, or has prepared a mode
ANSWER_SECONDS = 60


class Server:
    """A process that answers lines, each within a time limit; once it fails it stays failed."""

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
        """The next line for which is_answer holds; None, and self.error, where none comes in time."""
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
        """Lets it end, in so many seconds at most; whether it did so well."""
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
        # Ours may need libraries that PyTorch must not see.
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
            file.write(bench_gpu_table.render(self.results))

    def run_ours(self, what, flags):
        """The JSON of one call of bench_gpu, or None."""
        json_path = self.path(what.replace(" ", "_").replace(":", "_") + ".json")
        try:
            done = subprocess.run([self.binary, *flags, "--json", json_path], env=self.ours_environment, text=True,
                                  capture_output=True, timeout=max(1, min(PEER_SECONDS, self.left())))
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
        flags = ["--net", net, "--batch", str(batch), "--plans", self.path("plans.cache")]
        flags += ["--rates", self.path("roofline.json")] if "rates" in self.results else []
        return flags + (["--steps", "2", "--runs", "1", "--profile-runs", "1"] if self.is_smoke else [])

    def session(self, net, batch, peers):
        """Ours and each peer by turns."""
        name = f"{net}:{batch}"
        entry = self.results["nets"].setdefault(name, {"ours": None, "ours_ms": [], "peers": {}})
        json_path = self.path(f"{net}_{batch}.json")
        command = [self.binary, *self.flags(net, batch), "--precision", self.arguments.precision, "--resident", "--serve",
                   "--profile", "--json", json_path]
        ours = Server(command, self.ours_environment, self.path(f"{net}_{batch}.log"))
        if ours.expect(lambda line: line == "ready", min(PEER_SECONDS, self.left())) is None:
            self.fail(f"ours, {name}", ours.error)
        self.ask_ours(ours, entry)
        for peer in peers if self.arguments.has_torch else []:
            if self.left() < 20:
                self.fail(f"PyTorch, {name}, {bench_gpu_table.form(peer, '')}", "no time left")
                continue
            self.run_peer(net, batch, peer, ours, entry)
        was_well = ours.error is None
        if ours.close(ANSWER_SECONDS):
            with open(json_path) as file:
                entry["ours"] = json.load(file)["step"]
        elif was_well:
            self.fail(f"ours, {name}", ours.error)
        text = [ours.lines.get() for _ in range(ours.lines.qsize())]
        with open(self.path(f"{net}_{batch}.txt"), "w") as file:
            file.write("\n".join(line for line in text if line is not None) + "\n")
        self.save()

    def ask_ours(self, ours, entry):
        if ours.error is None:
            answer = ours.ask("run", is_number, ANSWER_SECONDS)
            if answer is not None:
                entry["ours_ms"].append(float(answer))

    def run_peer(self, net, batch, peer, ours, entry):
        options = {"net": net, "batch": batch, "precision": self.arguments.precision, "device": self.arguments.device,
                   **peer}
        kind = "compiled" if peer["compiles"] else "plain"
        log = self.path(f"torch_{net}_{batch}_{kind}{'_last' if peer['channels_last'] else ''}.log")
        server = Server([sys.executable, os.path.join(HERE, "torch_step.py"), json.dumps(options)], os.environ, log)

        def ask(line, seconds):
            answer = server.ask(line, lambda text: text.startswith("{"), seconds) if line else \
                server.expect(lambda text: text.startswith("{"), seconds)
            return {"error": server.error} if answer is None else json.loads(answer)

        def limit():
            return max(1, min(PEER_SECONDS, self.left()))

        ready = ask("", limit())
        self.results["torch"] = ready.get("torch", self.results.get("torch"))
        for mode in ["eager", "graph"]:
            form = bench_gpu_table.form(peer, mode)
            error = ready.get("error") or ask(f"prepare {mode}", limit()).get("error")
            measured = {"ms": [], "mib": 0}
            for _ in range(1 if self.is_smoke else RUNS):
                if error is not None:
                    break
                self.ask_ours(ours, entry)
                answer = ask(f"run {mode} {self.arguments.run_seconds}", ANSWER_SECONDS)
                error = answer.get("error")
                if error is None:
                    measured["ms"].append(answer["ms"])
                    measured["mib"] = answer["mib"]
            if error is not None:
                self.fail(f"PyTorch, {net}:{batch}, {form}", error)
            if measured["ms"]:
                entry["peers"][form] = measured
            if "error" in ready:
                break
        server.close(10)

    def run_others(self, net, batch):
        entry = self.results["nets"][f"{net}:{batch}"]
        for form, flags in OTHERS.items():
            if self.left() < 10:
                return self.fail(f"ours in other forms, {net}:{batch}", "no time left")
            precision = [] if "--precision" in flags else ["--precision", self.arguments.precision]
            run = self.run_ours(f"{net}:{batch} {form}",
                                self.flags(net, batch) + precision + flags + ["--seconds", "0.3"])
            if run is not None:
                entry.setdefault("others", {})[form] = run["step"]
        self.save()

    def run(self):
        nets = [(net, int(batch)) for net, batch in (item.split(":") for item in self.arguments.nets.split(","))]
        if not self.measure_rates() and not self.is_smoke:
            print("the card's rates could not be measured: the tables are without rooflines")
        for peers in [PLAIN, COMPILED]:
            for net, batch in nets:
                # Sequences know no channels_last.
                suited = [peer for peer in peers if not (net.startswith("gpt2") and peer["channels_last"])]
                if net.startswith("gpt2") and peers is COMPILED:
                    suited = [{"channels_last": False, "compiles": True}]
                if self.left() < 20:
                    self.fail(f"{net}:{batch}, compiled: {peers is COMPILED}", "no time left")
                elif peers is PLAIN or self.arguments.has_torch:
                    self.session(net, batch, suited)
        for net, batch in nets:
            if self.results["nets"].get(f"{net}:{batch}", {}).get("ours") is not None:
                self.run_others(net, batch)
        self.save()


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--out", default="build/bench_gpu")
    parser.add_argument("--seconds", type=float, default=420, help="that all of it may take")
    parser.add_argument("--run_seconds", type=float, default=0.5, help="of one run")
    parser.add_argument("--nets", default="")
    parser.add_argument("--precision", choices=["f32", "tf32", "bf16", "f16"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--library_path", default="", help="LD_LIBRARY_PATH of ours alone")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not os.path.exists("/dev/nvidiactl"):
        print("SKIPPED: there is no GPU")
        return
    arguments.nets = arguments.nets or (SMOKE_NETS if arguments.device == "cpu" else NETS)
    arguments.run_seconds = 0 if arguments.device == "cpu" else arguments.run_seconds
    arguments.has_torch = has_torch()
    if not arguments.has_torch:
        print("PyTorch is not installed: ours alone")
    bench = Bench(arguments)
    bench.run()
    with open(bench.path("tables.md")) as file:
        print(file.read())
    # Without any figure of ours it has failed; what failed of the rest stands in the tables.
    sys.exit(0 if any(entry["ours"] for entry in bench.results["nets"].values()) else 1)


if __name__ == "__main__":
    main()
