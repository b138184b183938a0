#!/usr/bin/env python3
"""Reads the Containerfiles and compose.yaml: what they copy exists, what they start exists, and nothing secret is in them."""

import json
import os
import re
import subprocess
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCKER = os.path.join(ROOT, "deploy/docker")
BIN = os.environ.get("TRAINYARD_BIN", "")
IMAGES = ("server", "worker", "client")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def instructions(image):
    """Returns the instructions of a Containerfile as pairs of a word and the rest, with continued lines joined."""
    text = read(os.path.join(DOCKER, f"{image}.Containerfile"))
    text = re.sub(r"\\\n", " ", "\n".join(line for line in text.split("\n") if not line.startswith("#")))
    return [tuple(line.split(None, 1)) for line in text.split("\n") if line.strip()]


def last_stage(image):
    found = instructions(image)
    first = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    return found[first:]


def flags_of(program):
    """Returns the flags that a program knows, as its help lists them."""
    text = subprocess.run([os.path.join(BIN, program), "--help"], capture_output=True, text=True, timeout=20, check=True).stdout
    return set(re.findall(r"^\s+(?:-\w,)?(--[a-z_-]+)", text, re.M))


class Images(unittest.TestCase):
    """Looks at each Containerfile."""

    def test_what_is_copied_exists(self):
        for image in IMAGES:
            for word, rest in instructions(image):
                if word != "COPY" or rest.startswith("--from="):
                    continue
                for source in rest.split()[:-1]:
                    self.assertTrue(os.path.exists(os.path.join(ROOT, source)), f"{image}: COPY {source}")

    def test_only_known_instructions_are_there(self):
        known = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "ENV", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
                 "ENTRYPOINT", "CMD"}
        for image in IMAGES:
            self.assertLessEqual({word for word, _ in instructions(image)}, known, image)

    def test_each_base_can_be_chosen(self):
        for image in IMAGES:
            bases = [rest.split()[0] for word, rest in instructions(image) if word == "FROM"]
            self.assertEqual(bases, ["${BUILD_BASE}", "${BASE}"], image)
            self.assertRegex(read(os.path.join(DOCKER, f"{image}.Containerfile")), r"(?m)^ARG BASE=\S+:12", image)

    def test_the_program_has_no_right_of_root(self):
        for image in IMAGES:
            users = [rest for word, rest in last_stage(image) if word == "USER"]
            self.assertEqual(users, ["10001:10001"], f"{image}: a kubelet wants a number")

    def test_nothing_is_unpacked_in_the_final_stage_but_programs_and_their_list(self):
        for image in IMAGES:
            copied = [rest for word, rest in last_stage(image) if word == "COPY"]
            self.assertEqual(copied, ["deploy/docker/install.sh /usr/share/trainyard/",
                                      "--from=build /image/packages /usr/share/trainyard/",
                                      "--from=build /image/bin/ /usr/bin/"], image)

    def test_no_secret_and_no_path_of_a_host_is_in_them(self):
        files = [os.path.join(DOCKER, name) for name in os.listdir(DOCKER)] + [os.path.join(ROOT, "deploy/compose.yaml")]
        for path in files:
            text = read(path)
            self.assertNotRegex(text, r"(?i)password|secret|ty[juq]_[A-Za-z0-9]|BEGIN [A-Z ]*PRIVATE KEY", path)
            self.assertNotRegex(text, r"(?<![\w.])/(home|root|work|mnt|Users)/", path)

    def test_each_image_says_how_it_is_seen_to_be_well(self):
        for image in IMAGES:
            checks = [rest for word, rest in last_stage(image) if word == "HEALTHCHECK"]
            self.assertEqual(len(checks), 1, image)
            if image == "client":
                self.assertEqual(checks, ["NONE"])
                continue
            command = json.loads(re.search(r"CMD (\[.*\])$", checks[0]).group(1))
            self.assertNotIn(command[0], ("true", "exit"), image)

    def test_all_programs_that_a_worker_starts_are_in_its_image(self):
        text = read(os.path.join(DOCKER, "worker.Containerfile"))
        collected = re.search(r"collect\.sh .*?\n(.*)\n", text).group(1)
        for program in ("worker", "supervisor", "trainer", "program", "enter", "stack"):
            self.assertIn(f"trainyard-{program}", collected)

    @unittest.skipUnless(BIN, "TRAINYARD_BIN names no folder of programs")
    def test_the_programs_know_the_flags_that_they_are_given(self):
        for image in ("server", "worker"):
            program = f"trainyard-{image}"
            words = json.loads(next(rest for word, rest in last_stage(image) if word == "CMD"))
            flags = {word.split("=")[0] for word in words if word.startswith("--")}
            self.assertLessEqual(flags, flags_of(program), image)

    def test_the_shell_scripts_can_be_read(self):
        for name in ("collect.sh", "install.sh"):
            subprocess.run(["sh", "-n", os.path.join(DOCKER, name)], check=True, timeout=20)
            self.assertTrue(os.access(os.path.join(DOCKER, name), os.X_OK), name)


@unittest.skipUnless(yaml, "there is no python3-yaml")
class Compose(unittest.TestCase):
    """Looks at compose.yaml."""

    def setUp(self):
        self.compose = yaml.safe_load(read(os.path.join(ROOT, "deploy/compose.yaml")))

    def test_each_service_is_as_restricted_as_the_images_permit(self):
        for name, service in self.compose["services"].items():
            self.assertIs(service["read_only"], True, name)
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            self.assertIn("no-new-privileges:true", service["security_opt"], name)

    def test_what_services_name_exists(self):
        for name, service in self.compose["services"].items():
            build = service["build"]
            context = os.path.normpath(os.path.join(ROOT, "deploy", build["context"]))
            self.assertTrue(os.path.exists(os.path.join(context, build["dockerfile"])), name)
            for volume in service["volumes"]:
                source = volume.split(":")[0]
                is_there = source in self.compose["volumes"] or os.path.exists(os.path.join(ROOT, "deploy", source))
                self.assertTrue(is_there, f"{name}: {volume}")
            for other in service.get("depends_on", {}):
                self.assertIn(other, self.compose["services"], name)

    def test_the_port_is_open_to_this_machine_alone(self):
        for port in self.compose["services"]["server"]["ports"]:
            self.assertTrue(port.startswith("127.0.0.1:"), port)

    @unittest.skipUnless(BIN, "TRAINYARD_BIN names no folder of programs")
    def test_the_programs_know_the_flags_that_they_are_given(self):
        for name in ("server", "worker"):
            words = self.compose["services"][name]["command"]
            flags = {word.split("=")[0] for word in words if word.startswith("--")}
            self.assertLessEqual(flags, flags_of(f"trainyard-{name}"), name)


if __name__ == "__main__":
    unittest.main()
