"""Training steps of one network in PyTorch, for bench_gpu.py: a process that answers lines.

A line is `prepare FORM` or `run FORM SECONDS`; the answer is one line of JSON: {}, {"ms", "mib"} or {"error"}. A form
is `eager` or `graph` (the whole step, its update included, as one CUDA graph), then `,channels_last` or nothing. Forms
of one layout share a model, compiled or not, so that it is compiled once; of two layouts, the first is let go.
"""
import gc
import json
import sys
import time

import torch
import torch_nets

WARMUP = 5
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def make_optimizer(model, is_sequence, is_cuda):
    """Uses the fused form if this PyTorch has it, and otherwise its own choice."""
    if is_sequence:
        kind, options = torch.optim.AdamW, {"lr": 1e-4, "weight_decay": 0.1, "capturable": is_cuda}
    else:
        kind, options = torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
    if is_cuda:
        try:
            return kind(model.parameters(), fused=True, **options)
        except (TypeError, RuntimeError):
            pass  # This PyTorch has no fused form of it.
    return kind(model.parameters(), **options)


class Trainer:
    def __init__(self, net, batch, precision, device, compiles, channels_last):
        self.device = device
        self.is_cuda = device == "cuda"
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        has_tf32 = precision != "f32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = has_tf32
        model = torch_nets.build(net).to(device).train()
        self.x, self.y = torch_nets.make_batch(net, batch, device)
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
            self.x = self.x.to(memory_format=torch.channels_last)
        self.optimizer = make_optimizer(model, net in torch_nets.GPT2, self.is_cuda)
        self.type = TYPES.get(precision)

        def measure_loss(x, y):
            return torch.nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

        self.measure_loss = torch.compile(measure_loss) if compiles else measure_loss
        self.graph = None
        self.steps = {}

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        # Copies of weights that autocast keeps would not be made again when a graph is replayed.
        with torch.autocast(self.device, self.type or torch.bfloat16, enabled=self.type is not None,
                            cache_enabled=not self.is_cuda):
            loss = self.measure_loss(self.x, self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def synchronize(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def capture(self):
        if not self.is_cuda:
            raise RuntimeError("a CPU has no CUDA graphs")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARMUP):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.step()

    def prepare(self, mode):
        if self.is_cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        if mode == "graph":
            self.capture()
            self.steps[mode] = self.graph.replay
        else:
            self.steps[mode] = self.step
        for _ in range(WARMUP if self.is_cuda else 1):
            result = self.steps[mode]()
        self.synchronize()
        loss = self.loss if mode == "graph" else result
        if not torch.isfinite(loss).item():
            raise RuntimeError(f"the loss is {loss.item()}")

    def time(self, step, count):
        """Seconds of one of `count` steps, from an idle device to an idle device."""
        self.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        self.synchronize()
        return (time.perf_counter() - start) / count

    def run(self, mode, seconds):
        step = self.steps[mode]
        once = self.time(step, 2)
        measured = self.time(step, max(2, int(seconds / once)))
        peak = torch.cuda.max_memory_allocated() if self.is_cuda else 0
        return {"ms": measured * 1e3, "mib": peak / 2**20}


class Server:
    def __init__(self, options):
        self.options = options
        self.layout = None
        self.trainer = None

    def answer(self, order, form, *seconds):
        mode, *layout = form.split(",")
        if self.trainer is None or layout != self.layout:
            self.trainer = None
            gc.collect()
            self.trainer, self.layout = Trainer(**self.options, channels_last=bool(layout)), layout
        if order == "prepare":
            self.trainer.prepare(mode)
            return {}
        return self.trainer.run(mode, float(seconds[0]))


def main():
    server = Server(json.loads(sys.argv[1]))
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        try:
            answer = server.answer(*line.split())
        except Exception as error:  # Whatever PyTorch says is the result.
            answer = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
