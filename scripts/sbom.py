#!/usr/bin/env python3
"""Writes a bill of materials in the form SPDX 2.3 (JSON) to stdout: sbom.py BUILD PACKAGE.deb...

It names the packages with their hashes, the packages of Debian that each of them needs where it is installed, those whose
headers and static libraries were compiled in, and the modules of npm that are in the page. Only what the build and the
packages say themselves is used, and the same build gives the same bytes.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SYSTEM = ("/usr/include/", "/usr/lib/", "/usr/local/cuda")


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def identifier(kind, name):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def owners(paths):
    """Returns the packages of Debian that own these files. Files of nobody are left out."""
    found = set()
    paths = sorted(paths)
    for begin in range(0, len(paths), 500):
        answer = subprocess.run(["dpkg-query", "-S", *paths[begin:begin + 500]], capture_output=True, text=True,
                                env={**os.environ, "LC_ALL": "C"}).stdout
        for line in answer.splitlines():
            names, _, _ = line.rpartition(": ")
            found.update(name.strip().split(":")[0] for name in names.split(","))
    return found


def compiled_in(build):
    """Returns the packages of which a header or a static library went into the build."""
    used = {os.path.realpath(word) for line in output_of("ninja", "-C", str(build), "-t", "deps").splitlines()
            for word in [line.strip()] if word.startswith(SYSTEM)}
    links = re.findall(r"/usr/lib/[^\s:]+\.a\b", (build / "build.ninja").read_text())
    used.update(os.path.realpath(path) for path in links if "/gtest" not in path)
    # Headers of the tests are not shipped, and those of the C library and the compiler are everywhere.
    return {name for name in owners(used) if not re.match(r"libgtest-dev|libgmock-dev|googletest|libc6-dev|linux-libc-dev", name)}


def installed(name):
    answer = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\t${source:Package}\t${source:Version}", name],
                            capture_output=True, text=True, check=False).stdout
    return answer.split("\t") if answer else None


class Document:
    def __init__(self, epoch):
        self.packages = {}
        self.relationships = []
        self.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))

    def add(self, kind, name, version, purl, license_text="NOASSERTION", **more):
        key = identifier(kind, name)
        self.packages[key] = {
            "SPDXID": key, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": license_text, "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}], **more}
        return key

    def add_debian(self, name):
        found = installed(name)
        if found is None:
            return None
        version, source, source_version = found
        return self.add("Debian", name, version, f"pkg:deb/debian/{name}@{version}",
                        sourceInfo=f"built from the source package {source} {source_version}")

    def relate(self, first, kind, second):
        self.relationships.append({"spdxElementId": first, "relationshipType": kind, "relatedSpdxElement": second})

    def write(self, name):
        digest = hashlib.sha256(json.dumps([self.packages, self.relationships], sort_keys=True).encode()).hexdigest()
        unique = sorted({json.dumps(one, sort_keys=True) for one in self.relationships})
        json.dump({
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
            "documentNamespace": f"urn:trainyard:sbom:{digest}",
            "creationInfo": {"created": self.created, "creators": ["Tool: trainyard-sbom"]},
            "packages": [self.packages[key] for key in sorted(self.packages)],
            "relationships": [json.loads(one) for one in unique]}, sys.stdout, indent=1)
        print()


def field(package, name):
    return output_of("dpkg-deb", "-f", str(package), name).strip()


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: sbom.py BUILD PACKAGE.deb...")
    build, packages = pathlib.Path(sys.argv[1]), [pathlib.Path(path) for path in sys.argv[2:]]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or output_of("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))
    document = Document(epoch)
    static = [key for name in sorted(compiled_in(build)) if (key := document.add_debian(name))]
    modules = []
    for path, entry in json.loads((ROOT / "server/http/page/package-lock.json").read_text())["packages"].items():
        if path and not entry.get("dev") and not entry.get("optional"):
            name = path.removeprefix("node_modules/")
            modules.append(document.add("npm", name, entry["version"], f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}",
                                        entry.get("license", "NOASSERTION")))
    version = ""
    for package in packages:
        name, version = field(package, "Package"), field(package, "Version")
        key = document.add("Package", name, version, f"pkg:deb/trainyard/{name}@{version}", "Apache-2.0",
                           packageFileName=package.name,
                           checksums=[{"algorithm": "SHA256", "checksumValue": hashlib.sha256(package.read_bytes()).hexdigest()}])
        document.relate("SPDXRef-DOCUMENT", "DESCRIBES", key)
        for clause in field(package, "Depends").split(","):
            needed = re.split(r"[\s(|:]", clause.strip())[0]
            if needed and not needed.startswith("trainyard") and (other := document.add_debian(needed)):
                document.relate(key, "DEPENDS_ON", other)
        if name != "python3-trainyard":
            for other in static:
                document.relate(other, "BUILD_DEPENDENCY_OF", key)
        if name in ("trainyard", "trainyard-server"):
            for other in modules:
                document.relate(key, "CONTAINS", other)
    document.write(f"trainyard-{version}")


if __name__ == "__main__":
    main()
