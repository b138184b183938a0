"""The parts of the GPU kit, in their order: what each runs, and how its results are judged."""
import collections
import glob
import json
import os
import re
import shutil

import steps

Part = collections.namedtuple("Part", ["title", "run"])

# The networks of a machine with a GPU, the most important first; those whose goals stand besides the two that have
# parts of their own; and those that the emulated device can run.
NETS = ["resnet50:256", "gpt2:16", "wrn-28-10:128", "googlenet:128", "convnet:64", "googlenet:43", "resnet18:128"]
OTHER_NETS = ["wrn-28-10:128", "googlenet:128", "googlenet:43", "convnet:64"]
SMOKE_NETS = ["smoke:4", "gpt2-smoke:2"]
# Small ones for tools that make each kernel a hundred times slower.
SANITIZED_NETS = [("mlp:8", "bf16"), ("convnet:8", "bf16"), ("gpt2-smoke:2", "bf16"), ("googlenet:4", "f16")]
SMOKE_SANITIZED_NETS = [("smoke:2", "f16")]
# Those whose candidates are compared.
VERIFIED_NETS = [("resnet50:256", "bf16"), ("gpt2:16", "bf16"), ("googlenet:128", "bf16"), ("resnet18:128", "f32")]
SMOKE_VERIFIED_NETS = [("smoke:4", "bf16"), ("gpt2-smoke:2", "f32")]
TELLING_TESTS = ["cuda_steps", "cuda_executable", "cuda_batch_norm"]
SANITIZERS = ["memcheck", "racecheck", "synccheck"]
# Functions of the kernels whose achieved bytes per second matter most.
PROFILED_KERNELS = "SumStatistics|Forward|Gradient|Update|Survey|AddLeft|Parameters"

bench_words = steps.matching(r"ms a step|^loss |roofline:|^plans: |^bench_gpu: ")


def suffix(kit):
    return "_on_cpu" if kit.is_emulated else "_on_gpu"


def program(kit, name):
    return os.path.join(kit.programs, name)


def environment(kit):
    return {"LD_LIBRARY_PATH": kit.libraries, "XDG_CACHE_HOME": os.path.join(kit.work, "cache")}


def by_role(kit, names):
    """Returns the networks, or small ones in their place on the emulated device."""
    return names if not kit.is_emulated else [SMOKE_NETS[i % len(SMOKE_NETS)] for i in range(min(len(names), 2))]


def bench(kit, net, *flags, precision="bf16"):
    name, batch = net.split(":")
    command = [program(kit, "bench_gpu" + ("_on_cpu" if kit.is_emulated else "")), "--net", name, "--batch", batch,
               "--precision", precision, "--resident", *flags]
    # The emulated device is slow, and its cuDNN refuses the attention of small networks.
    smoke = [["--steps", "2"], ["--runs", "1"], ["--profile-runs", "1"], ["--allow-fallbacks"]]
    for words in smoke if kit.is_emulated else []:
        command += words if words[0] not in flags else []
    return command


def judge_bench(log, status):
    words = bench_words(log) or steps.last_words(log)
    return (steps.PASSED if status == 0 else steps.FAILED), words


def judge_tests(kit):
    """On a machine with a GPU, a program all of whose tests are skipped has failed."""
    def judge(log, status):
        passed = len(re.findall(r"^\[       OK \]", log, re.M))
        failed = sorted(set(re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", log, re.M)))
        skipped = len(re.findall(r"^\[  SKIPPED \]", log, re.M))
        words = f"{passed} passed, {len(failed)} failed, {skipped} skipped"
        if status == 0 and passed == 0 and skipped:
            return (steps.FAILED if kit.has_gpu else steps.SKIPPED), words + ": " + steps.last_words(log)
        if status == 0:
            return steps.PASSED, words
        begun = re.findall(r"^\[ RUN      \] (.*)", log, re.M)
        where = ", ".join(failed[:8]) or f"ended with status {status} in {begun[-1] if begun else 'no test'}"
        return steps.FAILED, words + ": " + where
    return judge


def run_tests(kit, part, names, seconds):
    def call(name):
        command = [program(kit, name + suffix(kit))]
        part.step("test " + name, command, seconds, judge_tests(kit), environment=environment(kit))
    part.at_once([lambda name=name: call(name) for name in names
                  if os.path.exists(program(kit, name + suffix(kit)))])


MACHINE = """
nvidia-smi
facts=name,driver_version,pstate,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,mig.mode.current
nvidia-smi --query-gpu=$facts --format=csv
lscpu | head -20
"$0" -c 'import torch; print("PyTorch", torch.__version__, torch.version.cuda, torch.backends.cudnn.version(),
  torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")'
# PyTorch must not see these, since it has others.
export LD_LIBRARY_PATH=$2
echo "libraries: $LD_LIBRARY_PATH"
for program in "$1"/*; do ldd "$program"; done | sort -u | grep -E 'not found|cudnn|cublas|nccl|libcuda'
"""


def run_machine(kit, part):
    """Collects facts about the machine, so that figures have their card, driver and libraries beside them."""
    def judge(log, _):
        missing = sorted(set(re.findall(r"(\S+) => not found", log)))
        if missing:
            return steps.FAILED, "libraries are missing: " + ", ".join(missing)
        facts = re.findall(r"Driver Version: \S+|CUDA Version: \S+|PyTorch .*", log)
        return steps.PASSED, "; ".join(facts) or "no driver, no PyTorch"
    part.step("machine", ["bash", "-c", MACHINE, kit.python, kit.programs, kit.libraries], 60, judge)


def run_rates(kit, part):
    """Returns the flags that give a run the card's rates."""
    path = part.path("rates.json")
    sizes = ["--copy-mib", "1", "--matrix", "32", "--nodes", "10", "--rate-seconds", "0"] if kit.is_emulated else []
    command = [bench(kit, "mlp:1")[0], "--roofline", *sizes, "--json", path]
    passed = part.step("rates", command, 60, environment=environment(kit))
    return ["--rates", path] if passed else []


def json_of(part, net):
    return part.path(net.replace(":", "_") + ".json")


def untuned(kit, part):
    run_machine(kit, part)
    run_tests(kit, part, TELLING_TESTS, 90)
    rates = run_rates(kit, part)
    for net in NETS if not kit.is_emulated else SMOKE_NETS:
        command = bench(kit, net, "--no-autotuning", "--profile", *rates, "--json", json_of(part, net))
        part.step(net, command, 90, judge_bench, environment=environment(kit))


def find_tool(name):
    found = shutil.which(name)
    places = sorted(glob.glob(f"/usr/local/cuda*/bin/{name}") + glob.glob(f"/opt/nvidia/*/*/{name}"))
    return found or (places[-1] if places else None)


def judge_sanitizer(log, status):
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", log)
    words = summary[-1] if summary else steps.last_words(log)
    return (steps.PASSED if status == 0 and summary else steps.FAILED), words


def run_sanitizers(kit, part):
    sanitizer = find_tool("compute-sanitizer")
    if sanitizer is None:
        return part.skip("compute-sanitizer", "not run: this machine has no compute-sanitizer")
    for tool in SANITIZERS:
        watched = [sanitizer, "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
        test = program(kit, "cuda_kernels" + suffix(kit))
        if os.path.exists(test):
            part.step(f"{tool} cuda_kernels", [*watched, test], 150, judge_sanitizer, environment=environment(kit))
        for net, precision in SANITIZED_NETS if not kit.is_emulated else SMOKE_SANITIZED_NETS:
            command = bench(kit, net, "--no-autotuning", "--allow-fallbacks", "--steps", "1", "--runs", "1",
                            precision=precision)
            part.step(f"{tool} {net} {precision}", [*watched, *command], 60, judge_sanitizer,
                      environment=environment(kit))


def run_refused(kit, part):
    """Lets cuDNN say why it refused what the first part found refused."""
    found = glob.glob(kit.parts["untuned"].path("*_*.json"))
    if not found:
        return part.skip("refused plans", "not run: the part untuned has no results")
    for path in sorted(found):
        with open(path) as file:
            step = json.load(file)["step"]
        if not step["fallbacks"]:
            continue
        net = f"{step['net']}:{step['batch']}"
        log = part.file_of("cudnn " + net, ".txt")
        command = bench(kit, net, "--no-autotuning", "--allow-fallbacks", "--steps", "1", "--runs", "1")
        first = step["fallbacks"][0]
        words = f"{len(step['fallbacks'])} operations, the first {first['layer']} {first['op']}: {first['reason']}"
        part.step("refused plans " + net, command, 60,
                  lambda _, status, words=words: (steps.PASSED if status == 0 else steps.FAILED, words),
                  environment={**environment(kit), "CUDNN_LOGLEVEL_DBG": "2", "CUDNN_LOGDEST_DBG": log})


def sanitizer(kit, part):
    run_refused(kit, part)
    run_sanitizers(kit, part)


def tune(kit, part, net, *flags, seconds=400, precision="bf16"):
    """Measures candidates. Each choice is kept at once, so a call that ends early loses none.

    Returns true if all was measured, also where the program then says that something is wrong.
    """
    name = "tune " + " ".join([net, *flags] + ([precision] if precision != "bf16" else []))
    command = bench(kit, net, "--plans", kit.plans, "--profile", *flags, "--json", part.file_of(name, ".json"),
                    precision=precision)
    part.step(name, command, seconds, judge_bench, resumes=True, environment=environment(kit))
    return part.has_ended(name)


def compare(kit, part, name, nets, seconds, *flags):
    """Runs the comparison with PyTorch, whose tables the summary then has."""
    folder = part.path(name.replace(" ", "_"))

    def judge(log, status):
        tables = os.path.join(folder, "tables.md")
        if not os.path.exists(tables):
            return steps.FAILED, steps.last_words(log)
        shutil.copy(tables, part.path(name.replace(" ", "_") + "_tables.md"))
        failures = re.findall(r"^failed: .*", log, re.M)
        words = "; ".join(failures)[:steps.WORDS_MAX] or "all forms ran"
        return (steps.PASSED if status == 0 else steps.FAILED), words

    command = [kit.python, os.path.join(kit.bundle, "bench", "bench_gpu.py"), "--bin", kit.programs, "--out", folder,
               "--device", "cpu" if kit.is_emulated else "cuda", "--nets", ",".join(nets), "--plans", kit.plans,
               "--seconds", str(max(1, min(seconds, kit.left()) - 15)), "--library_path", kit.libraries, *flags]
    if kit.is_emulated:
        command += ["--without_torch", "--others", ""]
    part.step(name, command, seconds, judge)


def run_profiler(kit, part, net):
    profiler = find_tool("ncu")
    if profiler is None:
        return part.skip("ncu", "not run: this machine has no ncu")
    command = [profiler, "--clock-control", "none", "--kernel-name", f"regex:{PROFILED_KERNELS}",
               "--launch-count", "60", "--section", "SpeedOfLight", "--section", "MemoryWorkloadAnalysis",
               *bench(kit, net, "--no-graph", "--plans", kit.plans, "--steps", "1", "--runs", "1")]
    part.step("ncu " + net, command, 120, lambda log, status: (
        steps.PASSED if status == 0 and "Memory Throughput" in log else steps.FAILED, steps.last_words(log)),
        environment=environment(kit))


def resnet50(kit, part):
    net = by_role(kit, ["resnet50:256"])[0]
    if tune(kit, part, net):
        compare(kit, part, "beside PyTorch", [net], 240, "--compiled", "no", "--others",
                "inputs from the host,call by call,one stream")
        run_profiler(kit, part, net)
        tune(kit, part, net, precision="f16")


def gpt2(kit, part):
    net = by_role(kit, ["resnet50:256", "gpt2:16"])[1]
    is_tuned = tune(kit, part, net)
    tune(kit, part, net, "--deterministic")
    if is_tuned:
        compare(kit, part, "beside compiled PyTorch", [net], 300, "--compiled", "yes", "--others",
                "inputs from the host,deterministic,one stream")
    for other in OTHER_NETS if not kit.is_emulated else ["smoke:2"]:
        if tune(kit, part, other, seconds=200):
            compare(kit, part, "beside PyTorch " + other.replace(":", " "), [other], 150, "--compiled", "no",
                    "--others", "inputs from the host,one stream")


def job(kit, part):
    script = os.path.join(kit.bundle, "bench", "gpu_kit", "job.py")
    for name in ("service", "staged", "killed"):
        state = os.path.join(kit.work, "job_" + name)
        shutil.rmtree(state, ignore_errors=True)  # of a try that was interrupted
        command = [kit.python, script, name, "--bin", kit.programs, "--state", state, "--logs", part.file_of(name, "")]
        part.step(name, command, 150, environment=environment(kit))


def tests(kit, part):
    run_machine(kit, part)
    names = sorted(os.path.basename(path)[:-len(suffix(kit))] for path in glob.glob(program(kit, "*" + suffix(kit))))
    names = [name for name in names if name != "bench_gpu"]
    run_tests(kit, part, names, 240)
    probe = program(kit, "trainyard-probe")
    if os.path.exists(probe):
        device = part.path("device.json")
        if part.step("device", [probe, "--describe", device], 30, environment=environment(kit)):
            part.step("probe", [probe], 120, lambda log, status: (
                steps.PASSED if status == 0 else steps.FAILED,
                f"{log.count('| yes |')} graphs with a plan, {log.count('| no |')} without"),
                environment=environment(kit))
    for net, precision in VERIFIED_NETS if not kit.is_emulated else SMOKE_VERIFIED_NETS:
        name = f"candidates agree {net} {precision}"
        command = bench(kit, net, "--verify-plans", "--plans", kit.plans, "--steps", "2", "--runs", "1", "--profile",
                        "--json", part.file_of(name, ".json"), precision=precision)
        part.step(name, command, 300, judge_bench, environment=environment(kit))


PARTS = {
    "untuned": Part("tests that tell most, and all networks without tuning", untuned),
    "sanitizer": Part("compute-sanitizer on small networks, and why cuDNN refuses plans", sanitizer),
    "resnet50": Part("ResNet-50 tuned, beside PyTorch, and its kernels under ncu", resnet50),
    "gpt2": Part("GPT-2 tuned, beside compiled PyTorch; the networks of the other goals", gpt2),
    "job": Part("jobs through server and supervisor, with a tail batch, two ranks on a GPU, and a kill", job),
    "tests": Part("all tests, the probe, and candidates compared with our kernels and with each other", tests),
}
