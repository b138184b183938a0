#!/usr/bin/env python3
"""Tests and measures Trainyard on a GPU machine, part by part, in calls of less than ten minutes.

OUT keeps, from call to call, an archive of each part's results, the plans that were chosen, and summary.md. A call
takes up what an earlier one has left there: what passed is not run again, and what was interrupted goes on. Without
--part, it runs the next parts that are not finished, as long as there is time. run.sh starts it with the programs and
their libraries; docs/gpu_testing.md says what each part proves.
"""
import argparse
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback

import parts
import steps

# A part is not begun with less time than this.
PART_SECONDS_MIN = 30


class Kit:
    def __init__(self, arguments, work):
        self.end = time.monotonic() + arguments.seconds
        self.out = arguments.out
        self.programs = arguments.programs
        self.libraries = arguments.libraries
        self.bundle = arguments.bundle
        self.python = sys.executable
        self.is_emulated = os.path.exists(os.path.join(self.programs, "bench_gpu_on_cpu"))
        self.has_gpu = self.is_emulated or os.path.exists("/dev/nvidiactl")
        self.work = work
        self.stopped = False
        self.version = self.read_version()
        self.plans = os.path.join(work, "plans")
        os.makedirs(self.plans)
        os.makedirs(self.out, exist_ok=True)
        self.restore()
        self.parts = {name: steps.Part(name, os.path.join(work, name), self) for name in parts.PARTS}

    def read_version(self):
        try:
            with open(os.path.join(self.bundle, "CONTENTS")) as file:
                return file.readline().strip()
        except OSError:
            return "Trainyard of no bundle"

    def left(self):
        return self.end - time.monotonic()

    def is_stopped(self):
        return self.stopped

    def stop(self, *_):
        self.stopped = True

    def restore(self):
        for name in [*parts.PARTS, "plans"]:
            path = os.path.join(self.out, name + ".tar.gz")
            if not os.path.exists(path):
                continue
            try:
                with tarfile.open(path) as archive:
                    # Older Pythons have no filters, and newer ones want one.
                    archive.extractall(self.work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            except (OSError, tarfile.TarError) as error:
                sys.exit(f"kit.py: {path} cannot be read: {error}; move it away to begin anew")

    def save(self, part):
        for name in (part.name, "plans"):
            path = os.path.join(self.out, name + ".tar.gz")
            with tarfile.open(path + ".tmp", "w:gz", compresslevel=1) as archive:
                archive.add(os.path.join(self.work, name), name)
            os.replace(path + ".tmp", path)
        self.write_summary()

    def write_summary(self):
        text = f"# GPU session, {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC\n\n"
        text += f"{self.version}. Each archive beside this file has the logs of a part. "
        text += "Not covered on a machine with one GPU: NCCL between GPUs, batch norm synchronized over it, "
        text += "and GPUs that are divided into instances.\n\n"
        for name, part in self.parts.items():
            text += part.render(parts.PARTS[name].title)
        path = os.path.join(self.out, "summary.md")
        with open(path + ".tmp", "w") as file:
            file.write(text)
        os.replace(path + ".tmp", path)

    def run(self, name, retries):
        part = self.parts[name]
        part.retries = retries
        part.is_done = part.is_interrupted = False
        try:
            parts.PARTS[name].run(self, part)
        except Exception as error:  # A mistake of one part must not cost the others their time.
            traceback.print_exc()
            part.note("the kit itself", steps.FAILED, 0, f"{type(error).__name__}: {error}")
        part.is_done = not part.is_interrupted
        part.save()
        return part


def list_parts(kit):
    for name, part in kit.parts.items():
        state = "done" if part.is_done else "begun" if part.steps else "not begun"
        failed = part.count(steps.FAILED)
        print(f"{name:<10} {state:<10} {f'{failed} failed' if failed else '':<10} {parts.PARTS[name].title}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", default=os.environ.get("OUT") or "gpu_results",
                        help="folder of the results, also of earlier calls; default: $OUT, or gpu_results")
    parser.add_argument("--part", action="append", choices=list(parts.PARTS), default=[],
                        help="run this part, and what has failed in it again; may be repeated")
    parser.add_argument("--from", dest="before", help="folder with the results of earlier calls, to be copied to OUT")
    parser.add_argument("--list", action="store_true", help="list the parts and how far they are, and exit")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_MAX") or 570),
                        help="that the call may take; default: $SECONDS_MAX, or 570")
    parser.add_argument("--programs", required=True, help="folder of the programs")
    parser.add_argument("--libraries", default="", help="LD_LIBRARY_PATH of the programs")
    parser.add_argument("--bundle", required=True, help="folder of the bundle")
    arguments = parser.parse_args()
    if arguments.before and os.path.abspath(arguments.before) != os.path.abspath(arguments.out):
        shutil.copytree(arguments.before, arguments.out, dirs_exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        kit = Kit(arguments, work)
        if arguments.list:
            return list_parts(kit)
        signal.signal(signal.SIGTERM, kit.stop)
        signal.signal(signal.SIGINT, kit.stop)
        ran = []
        for name in arguments.part or [name for name, part in kit.parts.items() if not part.is_done]:
            if kit.left() >= PART_SECONDS_MIN and not kit.is_stopped():
                ran.append(kit.run(name, retries=bool(arguments.part)))
        kit.write_summary()
        list_parts(kit)
        # The call has failed if a step of the parts that it ran has.
        sys.exit(1 if any(part.count(steps.FAILED) for part in ran) else 0)


if __name__ == "__main__":
    main()
