#!/usr/bin/python3
"""Tests trainyard.torch with real PyTorch: a loop that is stopped and goes on from its checkpoint ends with the weights of one
that was not. Exits with 77 where there is no PyTorch."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "client/python"
SCRIPT = """
import os, random, sys
import numpy, torch
from MODULE import Loop
torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
with Loop(total_steps=20, every=5, model=model, optimizer=optimizer) as loop:
    for step in loop:
        noise = random.random() + numpy.random.normal()
        loss = (model(torch.randn(8, 4)) - 1 - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loop.log(loss=loss)
        if step == int(sys.argv[1]):
            os.kill(os.getpid(), 15)
print(loop.step, model.weight.detach().tolist())
"""


def main():
    if any(importlib.util.find_spec(name) is None for name in ("torch", "numpy")):
        print("there is no PyTorch here, or no numpy")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def run(name, stop_at, resume=None, module="trainyard.torch", path=FOLDER):
            for part in ("run", "checkpoints"):
                (folder / name / part).mkdir(parents=True, exist_ok=True)
            env = dict(os.environ, PYTHONPATH=str(path), TRAINYARD_RUN_DIR=str(folder / name / "run"),
                       TRAINYARD_CHECKPOINT_DIR=str(folder / name / "checkpoints"))
            if resume:
                env["TRAINYARD_RESUME_FROM"] = str(resume)
            script = SCRIPT.replace("MODULE", module)
            out = subprocess.run([sys.executable, "-B", "-c", script, str(stop_at)], env=env, check=True, capture_output=True,
                                 text=True, cwd=folder).stdout
            lines = (folder / name / "run/metrics.jsonl").read_text().splitlines()
            return out, sorted(p.name for p in (folder / name / "checkpoints").iterdir()), [json.loads(x) for x in lines]

        whole, checkpoints, _ = run("whole", 0)
        assert checkpoints == ["step-10", "step-15", "step-20", "step-5"], checkpoints
        stopped, checkpoints, lines = run("first", 12)
        assert stopped.startswith("12 "), stopped
        assert "step-12" in checkpoints, f"a stop is answered by a checkpoint: {checkpoints}"
        assert {"total_steps": 20} in lines
        resumed, _, lines = run("second", 0, folder / "first/checkpoints/step-12")
        assert resumed == whole, (resumed, whole)
        assert [line["step"] for line in lines if "step" in line] == list(range(13, 21)), lines
        # Copies of two files work alone.
        (folder / "copied").mkdir()
        shutil.copy(FOLDER / "trainyard/__init__.py", folder / "copied/trainyard.py")
        shutil.copy(FOLDER / "trainyard/torch.py", folder / "copied/trainyard_torch.py")
        copied, _, _ = run("third", 0, folder / "first/checkpoints/step-12", "trainyard_torch", folder / "copied")
        assert copied == whole, (copied, whole)
    return 0


if __name__ == "__main__":
    sys.exit(main())
