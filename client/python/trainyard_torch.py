"""The usual training loop of PyTorch as a job of Trainyard: it goes on from checkpoints, logs, and stops when asked to.

    import trainyard_torch

    with trainyard_torch.Loop(total_steps=1000, every=100, model=model, optimizer=optimizer) as loop:
        for step in loop:
            loss = train_step()
            loop.log(loss=loss)

Outside a job the loop runs all the same, and writes its checkpoints to checkpoints/ in the current folder. It needs
trainyard.py beside it.
"""

import torch
import torch.distributed

import trainyard

__all__ = ["Loop"]

_FILE = "state.pt"


def _plain(part):
    """Returns the module that DistributedDataParallel and its like wrap, whose names need no prefix."""
    is_wrapper = isinstance(part, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel))
    return part.module if is_wrapper else part


def _is_distributed():
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class Loop:
    """Counts steps from 1 to total_steps, or from the step after the checkpoint from which the attempt goes on.

    `parts` are whatever has state_dict() and load_state_dict(): models, optimizers, schedulers, scalers. Rank 0 saves
    them each `every` steps (0 for never), at the end, and when Trainyard asks for it; every rank loads them. The states
    of the generators of random numbers are kept with them, those of rank 0 for all ranks, unless `keep_random` is False.
    """

    def __init__(self, total_steps, every=0, keep_random=True, **parts):
        self.step = 0
        self.total_steps = int(total_steps)
        self._every = every
        self._keep_random = keep_random
        self._parts = {name: _plain(part) for name, part in parts.items()}
        self._saved = 0
        folder = trainyard.resume_from()
        if folder is not None:
            self._load(folder / _FILE)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return False

    def __iter__(self):
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

    def log(self, metrics=None, **more):
        """Logs metrics of the present step: loop.log(loss=loss)."""
        trainyard.log(self.step, metrics, **more)

    def save(self):
        """Writes a checkpoint of the present step, unless there is one."""
        if trainyard.rank() == 0 and self._saved != self.step:
            state = {"step": self.step, "parts": {name: part.state_dict() for name, part in self._parts.items()}}
            if self._keep_random:
                state["random"] = torch.get_rng_state()
                if torch.cuda.is_available():
                    state["cuda_random"] = torch.cuda.get_rng_state()
            with trainyard.checkpoint(self.step) as folder:
                torch.save(state, folder / _FILE)
        self._saved = self.step

    def _load(self, path):
        state = torch.load(path, map_location="cpu")
        missing = set(self._parts) ^ set(state["parts"])
        if missing:
            raise ValueError(f"{path} holds {sorted(state['parts'])}, but the loop has {sorted(self._parts)}")
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        if self._keep_random and "random" in state:
            torch.set_rng_state(state["random"])
            if torch.cuda.is_available() and "cuda_random" in state:
                torch.cuda.set_rng_state(state["cuda_random"])
        self.step = self._saved = int(state["step"])

    def _agree(self):
        """Returns whether a checkpoint is due and whether to stop, the same on all ranks: a signal may reach one of them
        a step before another, and a rank that goes on alone would wait for ever."""
        is_due = trainyard.should_checkpoint(self._every, self.step)
        is_stop = trainyard.should_stop()
        if _is_distributed() and torch.distributed.get_world_size() > 1:
            device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
            wishes = torch.tensor([int(is_due), int(is_stop)], device=device)
            torch.distributed.all_reduce(wishes, torch.distributed.ReduceOp.MAX)
            is_due, is_stop = bool(wishes[0]), bool(wishes[1])
        return is_due, is_stop
