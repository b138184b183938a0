"""Builds the wheel of the Python package without a network, and uses what it installs."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "client" / "python"
NEEDED = [name for name in ("pip", "wheel", "setuptools") if importlib.util.find_spec(name) is None]


@unittest.skipIf(NEEDED, f"{', '.join(NEEDED)} of /usr/bin/python3 would be needed (python3-pip, python3-wheel)")
class Wheel(unittest.TestCase):
    def test_it_is_built_and_can_be_imported(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copytree(SOURCE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
            subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
                            "--disable-pip-version-check", "-w", name, str(folder / "source")], check=True)
            wheel, = folder.glob("trainyard-*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
                archive.extractall(folder / "installed")
            for wanted in ("__init__.py", "client.py", "py.typed"):
                self.assertIn(f"trainyard/{wanted}", names)
            told = subprocess.run([sys.executable, "-B", "-c", "import trainyard; print(trainyard.connect.__module__)"],
                                  cwd=name, env={"PYTHONPATH": str(folder / "installed")}, capture_output=True, text=True,
                                  check=True).stdout
            self.assertEqual(told.strip(), "trainyard.client")


if __name__ == "__main__":
    unittest.main()
