#!/usr/bin/python3
"""Makes the Debian package python3-trainyard: make_deb.py [--version VERSION] [FOLDER] puts it into a folder, the present one if
none is given, and prints its path. Its version is that of the module, or the one that is given.

The package has what the wheel has, and all that is said of it comes from pyproject.toml, through the wheel. So it needs
setuptools and wheel (python3-setuptools, python3-wheel), dpkg-deb, and no network.
"""

import argparse
import email.parser
import email.utils
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parent
COPYRIGHT = SOURCE.parents[1] / "deploy/debian/copyright"
MAINTAINER = "Trainyard <trainyard@localhost>"  # DEBFULLNAME and DEBEMAIL name another one
# Compiles the files once, so that Python does not try to do so at each start of a user who may not write there.
POSTINST = """#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null; then py3compile -p python3-trainyard; fi
"""
PRERM = """#!/bin/sh
set -e
if command -v py3clean >/dev/null; then py3clean -p python3-trainyard; fi
"""


def make_wheel(folder):
    """Returns the path of the wheel. It is built from a copy, since setuptools writes beside the sources."""
    copy = folder / "source"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    script = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    built = subprocess.run([sys.executable, "-c", script, str(folder)], cwd=copy, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    if built.returncode != 0:
        sys.exit(f"{built.stdout}\nmake_deb.py: the wheel cannot be built (python3-setuptools, python3-wheel)")
    wheel, = folder.glob("*.whl")
    return wheel


def debian_version(version):
    """Returns a version that Debian sorts as Python does: a release comes after its candidates."""
    return re.sub(r"\.?(a|b|rc|dev)(\d+)", r"~\1\2", version)


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def description(metadata):
    """Returns the summary, and below it the readme without its title, in the form of a field of Debian."""
    lines = metadata.get_payload().strip().splitlines()
    if lines and lines[0].startswith("# "):
        lines = "\n".join(lines[1:]).strip().splitlines()
    # Debian shows lines of at most 80 characters.
    wrapped = []
    for paragraph in "\n".join(lines).split("\n\n"):
        for text in re.split(r"\n(?=- )", paragraph):
            wrapped += textwrap.wrap(re.sub(r"\s+", " ", text), 76, break_on_hyphens=False)
        wrapped.append("")
    wrapped.pop()
    return "\n".join([metadata["Summary"]] + [f" {line}" if line else " ." for line in wrapped])


def maintainer():
    if os.environ.get("DEBEMAIL"):
        return f"{os.environ.get('DEBFULLNAME', 'Trainyard')} <{os.environ['DEBEMAIL']}>"
    return MAINTAINER


def control(metadata, version, size):
    python = re.sub(r"^>=\s*", "", metadata["Requires-Python"])
    return f"""Package: python3-trainyard
Version: {version}
Architecture: all
Section: python
Priority: optional
Maintainer: {maintainer()}
Installed-Size: {size // 1024 + 1}
Depends: python3 (>= {python})
Recommends: git
Suggests: python3-pandas, python3-torch, python3-yaml
Description: {description(metadata)}
"""


def changelog(version):
    """Returns the file in which Debian looks for changes, compressed. The same time gives the same bytes."""
    date = email.utils.formatdate(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()))
    text = (f"trainyard ({version}) unstable; urgency=medium\n\n  * See /usr/share/doc/trainyard/CHANGELOG.md of the package "
            f"trainyard.\n\n -- {maintainer()}  {date}\n")
    return gzip.compress(text.encode(), mtime=0)


def make_deb(target, version=None):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        root = folder / "root"
        packages = root / "usr/lib/python3/dist-packages"
        packages.mkdir(parents=True)
        with zipfile.ZipFile(make_wheel(folder)) as wheel:
            wheel.extractall(packages)
        info, = packages.glob("*.dist-info")
        # pip leaves alone what has no list of its files, because it belongs to dpkg.
        (info / "RECORD").unlink()
        write(info / "INSTALLER", "dpkg\n")
        for path in packages.rglob("*"):
            if path.is_file():
                path.chmod(0o644)
        metadata = email.parser.Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        write(root / "usr/share/doc/python3-trainyard/copyright", COPYRIGHT.read_text(encoding="utf-8"))
        version = version or debian_version(metadata["Version"])
        (root / "usr/share/doc/python3-trainyard/changelog.gz").write_bytes(changelog(version))
        (root / "usr/share/doc/python3-trainyard/changelog.gz").chmod(0o644)
        if not os.environ.get("DEBEMAIL"):
            write(root / "usr/share/lintian/overrides/python3-trainyard",
                  "".join(f"python3-trainyard: {tag}\n" for tag in ("bogus-mail-host", "bogus-mail-host-in-debian-changelog")))
        write(root / "DEBIAN/control", control(metadata, version, size))
        write(root / "DEBIAN/postinst", POSTINST, 0o755)
        write(root / "DEBIAN/prerm", PRERM, 0o755)
        for path in [root, *root.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        target.mkdir(parents=True, exist_ok=True)
        deb = target / f"python3-trainyard_{version}_all.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(root), str(deb)], check=True,
                       stdout=subprocess.DEVNULL)
        return deb


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--version", help="version of the package, as Debian writes it")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    if shutil.which("dpkg-deb") is None:
        sys.exit("make_deb.py: there is no dpkg-deb here")
    print(make_deb(options.folder, options.version))


if __name__ == "__main__":
    main()
