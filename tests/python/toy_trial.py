"""A trial of a sweep for tests: its loss is a formula. It notes each step that it trains, and waits at each rung until
the test lets it go on, so that it trains exactly as far as the sweep decides, however slow the machine is."""

import math
import os
import pathlib
import sys
import time

FACTOR = 3
RUNGS = (1, 3, 9, 27)  # steps; the last is the whole training


def loss(x, step):
    """Early losses deceive: their order is that of the last ones only roughly, and better at each rung."""
    return abs(x - 0.6) + 0.12 * (1 + math.sin(40 * x)) / step


def main():
    import trainyard
    folder, writes_checkpoints = pathlib.Path(sys.argv[1]), sys.argv[2] == "checkpoints"
    x = float(trainyard.params["x"])
    start = trainyard.resume_from()
    trainyard.set_total_steps(RUNGS[-1])
    for step in range(int((start / "step").read_text()) + 1 if start else 1, RUNGS[-1] + 1):
        with open(folder / f"{x!r}.steps", "a", encoding="utf-8") as steps:
            steps.write(f"{step}\n")
        if step in RUNGS[:-1] and writes_checkpoints:
            with trainyard.checkpoint(step) as made:
                (made / "step").write_text(str(step))
        trainyard.log(step, loss=loss(x, step))
        while step in RUNGS[:-1] and not os.path.exists(folder / f"{x!r}.{step}"):
            if trainyard.should_stop():
                return
            time.sleep(0.01)


if __name__ == "__main__":
    main()
