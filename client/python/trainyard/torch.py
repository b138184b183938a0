"""The usual training loop of PyTorch as a job of Trainyard: it goes on from checkpoints, logs, and stops when asked to.

    from trainyard.torch import Loop

    with Loop(total_steps=1000, every=100, model=model, optimizer=optimizer) as loop:
        for step in loop:
            loss = train_step()
            loop.log(loss=loss)

Outside a job the loop runs all the same, and writes its checkpoints to checkpoints/ in the current folder. This file needs
PyTorch and the first file of the package and nothing else, so both can be copied beside a script: as trainyard_torch.py
(torch.py would hide PyTorch) and as trainyard.py. Then `from trainyard_torch import Loop` finds it.
"""

from __future__ import annotations

import pathlib
import random
import sys
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import torch
import torch.distributed

import trainyard

__all__ = ["Loop"]

_FILE = "state.pt"


def _plain(part: Any) -> Any:
    """Returns the module that DistributedDataParallel, torch.compile and their like wrap, whose names need no prefix."""
    while True:
        if isinstance(part, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            part = part.module
        elif isinstance(part, torch.nn.Module) and hasattr(part, "_orig_mod"):
            part = part._orig_mod
        else:
            return part


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _random_states() -> Dict[str, Any]:
    """The states of the generators of random numbers, of numbers and tensors alone."""
    states = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kept = numpy.random.get_state()
        if isinstance(kept, tuple):  # that of the usual generator
            states["numpy"] = (kept[0], kept[1].tolist(), *kept[2:])
    return states


def _set_random_states(states: Mapping[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    version, numbers, rest = states["python"]
    random.setstate((version, tuple(numbers), rest))
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in states:
        numpy.random.set_state(tuple(states["numpy"]))


class Loop:
    """Counts steps from 1 to total_steps, or from the step after the checkpoint from which the attempt goes on.

    `parts` are whatever has state_dict() and load_state_dict(): models, optimizers, schedulers, scalers. Rank 0 saves
    them each `every` steps (0 for never), at the end, and when Trainyard asks for it; every rank loads them. The states
    of the generators of random numbers are kept with them, those of rank 0 for all ranks, unless `keep_random` is False.
    """

    def __init__(self, total_steps: int, every: int = 0, keep_random: bool = True, **parts: Any) -> None:
        self.step = 0
        self.total_steps = int(total_steps)
        self._every = every
        self._keep_random = keep_random
        self._parts = {name: _plain(part) for name, part in parts.items()}
        self._saved = 0
        folder = trainyard.resume_from()
        if folder is not None:
            self._load(folder / _FILE)

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[int]:
        if trainyard.rank() == 0:
            trainyard.set_total_steps(self.total_steps)
        while self.step < self.total_steps:
            self.step += 1
            yield self.step
            is_due, is_stop = self._agree()
            is_last = self.step == self.total_steps
            if is_due or (is_last and self._every > 0):
                self.save()
            if is_stop:
                return

    def log(self, metrics: Optional[Mapping[str, Any]] = None, **more: Any) -> None:
        """Logs metrics of the present step: loop.log(loss=loss)."""
        trainyard.log(self.step, metrics, **more)

    def save(self) -> None:
        """Writes a checkpoint of the present step, unless there is one."""
        if trainyard.rank() == 0 and self._saved != self.step:
            state = {"step": self.step, "parts": {name: part.state_dict() for name, part in self._parts.items()}}
            if self._keep_random:
                state["generators"] = _random_states()
            with trainyard.checkpoint(self.step) as folder:
                torch.save(state, folder / _FILE)
        self._saved = self.step

    def _load(self, path: pathlib.Path) -> None:
        state = torch.load(path, map_location="cpu")
        if set(self._parts) != set(state["parts"]):
            raise ValueError(f"{path} holds {sorted(state['parts'])}, but the loop has {sorted(self._parts)}")
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        if self._keep_random and "generators" in state:
            _set_random_states(state["generators"])
        self.step = self._saved = int(state["step"])

    def _agree(self) -> Tuple[bool, bool]:
        """Returns whether a checkpoint is due and whether to stop, the same on all ranks: a signal may reach one of them
        a step before another, and a rank that goes on alone would wait for ever."""
        is_stop = trainyard.should_stop()
        is_due = is_stop or trainyard.should_checkpoint(self._every, self.step)
        if _is_distributed() and torch.distributed.get_world_size() > 1:
            device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
            wishes = torch.tensor([int(is_due), int(is_stop)], device=device)
            torch.distributed.all_reduce(wishes, torch.distributed.ReduceOp.MAX)
            is_due, is_stop = bool(wishes[0]), bool(wishes[1])
        return is_due or is_stop, is_stop
