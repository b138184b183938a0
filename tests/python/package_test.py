"""Builds the wheel of the Python package and its Debian package without a network, and uses what they install."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "client" / "python"
MODULES = sorted(path.name for path in (SOURCE / "trainyard").iterdir() if path.suffix in (".py", ".typed"))


def missing(*names):
    return [name for name in names if importlib.util.find_spec(name) is None]


def version():
    return re.search(r'^version = "(.*)"$', (SOURCE / "pyproject.toml").read_text(), re.MULTILINE).group(1)


def sources():
    """The files of the package. Other tests, which run at the same time, leave compiled ones beside them."""
    return sorted(path for path in SOURCE.rglob("*") if "__pycache__" not in path.parts)


class Package(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, packages):
        """Uses what was installed into a folder: all modules are there, and the client and the metadata are found."""
        self.assertEqual(sorted(path.name for path in (packages / "trainyard").iterdir()), MODULES)
        script = ("import importlib.metadata, trainyard; "
                  "print(trainyard.connect.__module__, trainyard.__file__, importlib.metadata.version('trainyard'))")
        told = subprocess.run([sys.executable, "-B", "-c", script], cwd=self.folder, env={"PYTHONPATH": str(packages)},
                              capture_output=True, text=True, check=True).stdout
        self.assertEqual(told.split(), ["trainyard.client", str(packages / "trainyard/__init__.py"), version()])

    @unittest.skipIf(missing("pip", "wheel", "setuptools"),
                     f"{', '.join(missing('pip', 'wheel', 'setuptools'))} of /usr/bin/python3 would be needed (python3-pip, "
                     "python3-wheel)")
    def test_the_wheel_is_built_and_can_be_imported(self):
        shutil.copytree(SOURCE, self.folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
                        "--disable-pip-version-check", "-w", str(self.folder), str(self.folder / "source")], check=True)
        wheel, = self.folder.glob("trainyard-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self.folder / "installed")
        self.check(self.folder / "installed")

    @unittest.skipIf(shutil.which("dpkg-deb") is None, "there is no dpkg-deb here")
    @unittest.skipIf(missing("wheel", "setuptools"),
                     f"{', '.join(missing('wheel', 'setuptools'))} of /usr/bin/python3 would be needed (python3-setuptools, "
                     "python3-wheel)")
    def test_the_debian_package_is_built_and_can_be_imported(self):
        before = sources()
        told = subprocess.run([sys.executable, "-B", str(SOURCE / "make_deb.py"), str(self.folder / "out")], umask=0o077,
                              capture_output=True, text=True, check=True).stdout
        self.assertEqual(sources(), before, "nothing is left beside the sources")
        deb = self.folder / "out" / f"python3-trainyard_{version()}_all.deb"
        self.assertEqual(told.strip(), str(deb))

        def field(name):
            return subprocess.run(["dpkg-deb", "-f", str(deb), name], capture_output=True, text=True,
                                  check=True).stdout.strip()

        self.assertEqual((field("Package"), field("Version"), field("Architecture"), field("Depends")),
                         ("python3-trainyard", version(), "all", "python3 (>= 3.9)"))
        listed = subprocess.run(["dpkg-deb", "-c", str(deb)], capture_output=True, text=True, check=True).stdout
        self.assertEqual({line.split()[0] + line.split()[1] for line in listed.splitlines()},
                         {"drwxr-xr-xroot/root", "-rw-r--r--root/root"})
        subprocess.run(["dpkg-deb", "-x", str(deb), str(self.folder / "root")], check=True)
        self.check(self.folder / "root/usr/lib/python3/dist-packages")

    def test_a_release_comes_after_its_candidates(self):
        sys.path.insert(0, str(SOURCE))
        self.addCleanup(sys.path.remove, str(SOURCE))
        import make_deb
        self.assertEqual([make_deb.debian_version(text) for text in ("0.2.0", "0.2.0rc1", "0.2.0.dev3", "1.0a2")],
                         ["0.2.0", "0.2.0~rc1", "0.2.0~dev3", "1.0~a2"])


if __name__ == "__main__":
    unittest.main()
