"""Tests of the code that travels with jobs, as the Python client makes it: what is left out, and that the archive is the
one that the command line makes."""

import contextlib
import io
import os
import pathlib
import random
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import unittest.mock

import trainyard
from trainyard import archive, ignore, repository

BIN = os.environ["TRAINYARD_BIN"]


class Rules(unittest.TestCase):
    def check(self, text, left_out, kept, base=b""):
        rules = ignore.RuleFile(base, text.encode())
        for path in left_out + kept:
            name, is_folder = path.rstrip("/").encode(), path.endswith("/")
            self.assertEqual(bool(rules.decides(name, is_folder)), path in left_out, (text, path))

    def test_patterns_match_as_git_says(self):
        self.check("*.log", ["a.log", "b/c.log", ".log"], ["a.logs", "log"])
        self.check("/data\nbuild/\n", ["data", "build/", "a/build/"], ["a/data", "build", "builds/"])
        self.check("src/*.py", ["src/a.py"], ["a/src/a.py", "src/b/a.py"])
        self.check("**/out", ["out", "a/out", "a/b/out"], ["outs", "a/outs"])
        self.check("a/**", ["a/b", "a/b/c"], ["a", "b/a/c"])
        self.check("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "x/a/b"])
        self.check("a**b", ["ab", "axb"], ["a/b"])
        self.check("***/x", ["x", "a/x"], ["ax"])
        self.check("?.py\n[a-c]x\n[!a-c]y\n[]]z\n[[:digit:]]d",
                   ["a.py", "bx", "dy", "]z", "7d"], ["ab.py", "dx", "ay", "[z", "xd"])
        self.check("a[\nb\\", [], ["a[", "a", "b", "b\\"])
        self.check("[z-a]\n[^/]q", ["z", "xq"], ["y", "a", "/q"])
        self.check("*.log\n!keep.log\n", ["a.log"], ["keep.log", "b/keep.log"])
        self.check("# no\n\\# yes\n\\!so\n\n   \nspace  \nkept\\ \r\n",
                   ["# yes", "!so", "space", "kept "], ["# no", "so", "kept"])
        self.check("\ufeffbom\n/\n", ["bom"], ["x", "x/"])
        self.check("*.log\n/top", ["s/a.log", "s/t/b.log", "s/top"], ["a.log", "top", "s/t/top"], base=b"s/")

    def test_what_they_leave_out_is_what_git_leaves_out(self):
        names = ["a", "b.log", "c.py", "data", "build", "x y", "keep", "\u00e4.py", "[z]", "out", ".hidden"]
        patterns = ["*.log", "!keep", "build/", "/data", "src/*.py", "**/out", "out/**", "a/**/b.log", "[ab]*", "x\\ y",
                    "\\[z\\]", "!*.log", "!/build/", "[!a-e]*", "?.py", "# no", "/a/b.log", "a/*", "*", "!*/", "!*.py"]
        for seed in range(25):
            rng = random.Random(seed)
            with temporary_folder() as folder:
                def fill(path, depth):
                    for name in rng.sample(names, rng.randint(2, 6)):
                        if rng.random() < 0.4 and depth < 3:
                            (path / name).mkdir()
                            fill(path / name, depth + 1)
                        else:
                            (path / name).write_text(name)
                    if rng.random() < 0.5:
                        end = rng.choice(["\n", "\r\n"])
                        (path / ".gitignore").write_text(end.join(rng.sample(patterns, rng.randint(1, 5))) + end)
                fill(folder, 0)
                git(folder, "init")
                (folder / ".git/info/exclude").write_text(rng.choice(patterns) + "\n")
                listed = git(folder, "ls-files", "-z", "-o", "--exclude-standard")
                self.assertEqual(files_of(folder), sorted(filter(None, listed.split("\0"))), f"seed {seed}")


@contextlib.contextmanager
def temporary_folder():
    """A folder, and no settings of git from outside."""
    with tempfile.TemporaryDirectory() as name, unittest.mock.patch.dict(os.environ, {
            "HOME": name, "XDG_CONFIG_HOME": f"{name}/config", "XDG_CACHE_HOME": f"{name}/cache", "GIT_CONFIG_NOSYSTEM": "1"}):
        folder = pathlib.Path(name).resolve() / "project"
        folder.mkdir()
        yield folder


def git(folder, *words):
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", "-C", str(folder), *settings, *words], capture_output=True, check=True).stdout.decode()


def make(folder, **limits):
    file = io.BytesIO()
    return archive.make_archive(str(folder), file, **limits), file.getvalue()


def names_of(data, with_folders=True):
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as members:
        return [member.name for member in members if with_folders or not member.isdir()]


def files_of(folder):
    return names_of(make(folder)[1], with_folders=False)


class Folders(unittest.TestCase):
    def setUp(self):
        context = temporary_folder()
        self.folder = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def put(self, path, content="x"):
        full = self.folder / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(content)

    def commit(self):
        git(self.folder, "init")
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-m", "first")

    def test_patterns_leave_files_out_without_a_repository_and_without_git(self):
        for path in ("train.py", "data/big.bin", "src/a.py", "src/a.log", "src/sub/b.log", "src/sub/keep.log",
                     "made/by/hand.py"):
            self.put(path)
        self.put(".gitignore", "*.log\n/made/\n")
        self.put(".trainyardignore", "/data/\n!/made/\n")
        self.put("src/sub/.trainyardignore", "!keep.log\n")
        wanted = [".gitignore", ".trainyardignore", "made/by/hand.py", "src/a.py", "src/sub/.trainyardignore",
                  "src/sub/keep.log", "train.py"]
        self.assertEqual(files_of(self.folder), wanted)
        made, _ = make(self.folder)
        self.assertEqual((made.origin, made.left_out), ({}, []))
        with unittest.mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertEqual(files_of(self.folder), wanted)
            self.assertEqual(make(self.folder)[0].left_out, [])
            (self.folder / ".git").mkdir()
            warned, = make(self.folder)[0].left_out
            self.assertIn("git does not read the repository", warned)

    def test_what_git_tracks_travels_unless_trainyardignore_says_no(self):
        self.put("kept.log")
        self.put("secret.env")
        self.put("gone.py")
        self.put("train.py", "one\n")
        self.commit()
        git(self.folder, "remote", "add", "origin", "https://anna:password@git.example/project.git")
        self.put(".gitignore", "*.log\nout/\n")
        self.put(".trainyardignore", "*.env\n")
        self.put("other.log")
        self.put("out/result")
        self.put("train.py", "two\n")
        self.put("secret.env", "changed")
        (self.folder / "gone.py").unlink()
        self.assertEqual(files_of(self.folder), [".gitignore", ".trainyardignore", "kept.log", "train.py"])
        origin = make(self.folder)[0].origin
        self.assertRegex(origin["commit"], "^[0-9a-f]{40}$")
        self.assertEqual({**origin, "commit": ""}, {"commit": "", "branch": "main", "is_dirty": True,
                                                    "remote": "https://git.example/project.git"})
        self.assertIn(b"-one\n+two\n", origin.diff)
        self.assertIn(b"gone.py", origin.diff)
        self.assertNotIn(b"secret", origin.diff)
        # A folder below is a part of the same repository, and its patterns hold there too.
        self.put("sub/a.log")
        self.put("sub/b.py")
        self.assertEqual(files_of(self.folder / "sub"), ["b.py"])
        self.assertEqual(make(self.folder / "sub")[0].origin.diff, b"")

    def test_a_committed_folder_is_clean_and_long_differences_are_cut_off(self):
        self.put("train.py", "one\n")
        self.put("more.py", "x\n" * 60000)
        self.commit()
        self.assertNotIn("is_dirty", make(self.folder)[0].origin)
        self.put("new.py")
        origin = make(self.folder)[0].origin
        self.assertTrue(origin["is_dirty"], "the commit lacks a file")
        self.assertEqual(origin.diff, b"")
        self.put("more.py", "".join(f"{n}\n" for n in range(60000)))
        diff = make(self.folder)[0].origin.diff
        self.assertTrue(60000 < len(diff) <= 65536 and diff.endswith(b"\n"), len(diff))

    def test_variables_of_git_do_not_lead_elsewhere(self):
        self.put("kept.log")
        self.commit()
        self.put(".gitignore", "*.log\n")
        with unittest.mock.patch.dict(os.environ, {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere"}):
            self.assertEqual(files_of(self.folder), [".gitignore", "kept.log"])

    def test_a_folder_that_its_repository_ignores_travels_all_the_same(self):
        self.put(".gitignore", "scratch/\n")
        git(self.folder, "init")
        self.put("scratch/try.py")
        self.assertEqual(files_of(self.folder / "scratch"), ["try.py"])

    def test_links_that_stay_inside_travel_and_others_are_named(self):
        self.put("a/train.py")
        (self.folder / "inside").symlink_to("a/train.py")
        (self.folder / "outside").symlink_to("/etc")
        (self.folder / "a/up").symlink_to("../../other")
        os.mkfifo(self.folder / "pipe")
        made, _ = make(self.folder)
        self.assertEqual(files_of(self.folder), ["a/train.py", "inside"])
        named = [re.search("'(.*?)'", sentence).group(1) for sentence in made.left_out]
        self.assertEqual(named, ["a/up", "outside", "pipe"])

    def test_the_message_names_what_is_largest(self):
        self.put("train.py")
        self.put("data/huge.bin", "x" * 5000)
        with self.assertRaises(trainyard.TrainyardError) as caught:
            make(self.folder, content_bytes=1000)
        self.assertEqual(caught.exception.reason, "CODE_TOO_LARGE")
        self.assertRegex(str(caught.exception), r"4\.9 KiB in 3 files and folders(.|\n)*4\.9 KiB  data/huge\.bin(.|\n)*"
                                                r"\.trainyardignore")
        for n in range(9):
            self.put(f"many/{n}", "")
        with self.assertRaisesRegex(trainyard.TrainyardError, "9 files  many"):
            make(self.folder, entries=5)
        with self.assertRaises(trainyard.NotFound):
            make(self.folder / "none")

    def test_a_file_that_changes_while_it_is_read_is_read_again(self):
        self.put("train.py", "x" * 100)
        listed = archive.list_folder

        def shorter(*args):
            listing = listed(*args)
            if (self.folder / "train.py").stat().st_size == 100:
                self.put("train.py", "y" * 50)
            return listing

        with unittest.mock.patch.object(archive, "list_folder", shorter):
            _, data = make(self.folder)
        with tarfile.open(fileobj=io.BytesIO(data)) as members:
            self.assertEqual(members.extractfile("train.py").read(), b"y" * 50)

    def test_the_form_stays_the_same(self):
        # The digest of tests/unit/common/code/archive_test.cc for the same files.
        self.put("a.py", "a.py")
        self.put("b.py", "b.py")
        (self.folder / "b.py").chmod(0o744)
        self.assertEqual(make(self.folder)[0].digest,
                         "sha256:d21cb228867f68bbbbb856b6641fd2f087fb78a6d68591646445c2b717daa914")

    def test_the_command_line_makes_the_same_archive(self):
        self.put("train.py", "one\n")
        self.put("src/sub/b.log")
        self.put("src/keep.log")
        self.put("n" * 90 + "/" + "m" * 90 + "/\u00e4 b.py", "long" * 1000)
        self.put("run.sh", "#!/bin/sh\n")
        (self.folder / "run.sh").chmod(0o755)
        (self.folder / "empty/below").mkdir(parents=True)
        (self.folder / "link").symlink_to("src/keep.log")
        (self.folder / "long").symlink_to("x" * 150)
        (self.folder / ("l" * 120)).symlink_to("y" * 130)
        (self.folder / "out").symlink_to("/etc")
        with open(os.fsencode(self.folder) + b"/no\xfftext", "wb") as file:
            file.write(b"x" * 513)
        self.put("a.txt")
        self.put("a/b")
        self.put("a-b")
        self.put(".gitignore", "*.log\n")
        self.put("src/.trainyardignore", "!keep.log\n/sub/nothing\n")
        self.assert_same()
        git(self.folder, "init")
        git(self.folder, "add", "-f", "src", "train.py")
        git(self.folder, "commit", "-m", "first")
        self.put(".trainyardignore", "a/\n")
        self.put("more.log")
        self.assert_same()
        self.assert_same(self.folder / "src")

    def assert_same(self, folder=None):
        folder = folder or self.folder
        told = subprocess.run([f"{BIN}/trainyard", "submit", "--dry-run", "-q", "--code", str(folder), "--", "true"],
                              capture_output=True, text=True, check=True).stdout
        digest = re.search("sha256:[0-9a-f]{64}", told).group(0)
        made, data = make(folder)
        if made.digest == digest:
            return
        path = pathlib.Path(os.environ["XDG_CACHE_HOME"], "trainyard/code/archives", digest[7:] + ".tar")
        with tarfile.open(path, encoding="utf-8") as theirs:
            self.assertEqual(names_of(data), theirs.getnames())
        self.assertEqual(data, path.read_bytes())


class Places(unittest.TestCase):
    def test_addresses_lose_their_passwords(self):
        self.assertEqual(repository.without_password("https://a:b@host/p@q"), "https://host/p@q")
        self.assertEqual(repository.without_password("git@host:a/b"), "git@host:a/b")
        self.assertEqual(repository.without_password("ssh://git@host/a"), "ssh://host/a")

    def test_a_link_may_lead_up_at_its_beginning_alone(self):
        for path, target in ((b"a/l", b"../b"), (b"l", b"a/b"), (b"l", b"./a"), (b"a/b/l", b"../../c")):
            self.assertFalse(archive.leads_out(path, target), (path, target))
        for path, target in ((b"l", b"../a"), (b"l", b"/a"), (b"l", b""), (b"a/l", b"b/../c"), (b"a/l", b"../../c")):
            self.assertTrue(archive.leads_out(path, target), (path, target))


if shutil.which("git") is None:
    raise unittest.SkipTest("git is not installed")

if __name__ == "__main__":
    unittest.main()
