#!/usr/bin/env python3
"""Runs Trainyard on a real Kubernetes API server, as deploy/kubernetes says.

The control plane is real (etcd, API server, controllers, scheduler). The node is a fake kubelet, which runs what the images
would run as processes. scripts/kubernetes_test.sh starts this in a network namespace of its own.
"""

import argparse
import base64
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import yaml

from api import Api, ApiError
from fake_kubelet import NODE_CIDR, Kubelet, entrypoint_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PORT = 26443
SPACE = "/api/v1/namespaces/trainyard"


class Failed(Exception):
    """Something is not as it has to be."""


def say(text):
    print(f"== {text}", flush=True)


def check(is_so, text):
    if not is_so:
        raise Failed(text)


def within(seconds, look, what):
    """Waits until look() returns something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        check(time.monotonic() < end, f"this took longer than {seconds} s: {what}")
        time.sleep(0.2)


class ControlPlane:
    """etcd, API server, controllers and scheduler on loopback."""

    def __init__(self, binaries, folder):
        self.binaries = binaries
        self.folder = folder
        self.processes = []
        self.token = os.urandom(16).hex()
        self.url = f"https://127.0.0.1:{PORT}"
        self.kubeconfig = os.path.join(folder, "kubeconfig")
        self.api_server = None

    def start_one(self, name, *words):
        with open(os.path.join(self.folder, f"{name}.log"), "ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
        self.processes.append(process)
        return process

    def start_api_server(self):
        self.api_server = self.start_one(
            "apiserver", f"{self.binaries}/kube-apiserver", f"--etcd-servers=http://127.0.0.1:{PORT + 1}", "--cert-dir=certs",
            # Pods reach it at the address of their node, for which its certificate is too.
            f"--secure-port={PORT}", "--bind-address=0.0.0.0", f"--advertise-address={NODE_CIDR}.1",
            "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default",
            "--service-account-signing-key-file=sa.key", "--service-account-key-file=sa.pub",
            "--token-auth-file=tokens.csv", "--client-ca-file=people.crt", "--authorization-mode=RBAC",
            "--allow-privileged=true")
        api = Api(self.url, self.token)

        def is_ready():
            try:
                return api.get("/api/v1/namespaces/default") is not None
            except (ApiError, OSError):
                return False

        within(90, is_ready, "the API server starts")
        return api

    def restart_api_server(self):
        self.api_server.kill()
        self.api_server.wait()
        self.processes.remove(self.api_server)
        self.start_api_server()

    def make_authority_of_people(self):
        """Makes the authority by which people sign in with certificates, and a certificate for one of them."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7",
                        "-subj", "/CN=people", "-keyout", "people.key", "-out", "people.crt"], cwd=self.folder, check=True,
                       capture_output=True)
        subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                        "/O=system:masters/CN=olga", "-keyout", "olga.key", "-out", "olga.csr"], cwd=self.folder, check=True,
                       capture_output=True)
        subprocess.run(["openssl", "x509", "-req", "-in", "olga.csr", "-CA", "people.crt", "-CAkey", "people.key",
                        "-CAcreateserial", "-days", "7", "-out", "olga.crt"], cwd=self.folder, check=True, capture_output=True)

    def start(self):
        os.makedirs(self.folder)
        with open(os.path.join(self.folder, "tokens.csv"), "w", encoding="utf-8") as out:
            os.chmod(out.name, 0o600)
            out.write(f'{self.token},admin,1,"system:masters"\n')
        subprocess.run(["openssl", "genrsa", "-out", "sa.key", "2048"], cwd=self.folder, check=True, capture_output=True)
        subprocess.run(["openssl", "rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"], cwd=self.folder, check=True,
                       capture_output=True)
        with open(self.kubeconfig, "w", encoding="utf-8") as out:
            os.chmod(out.name, 0o600)
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "test",
                       "clusters": [{"name": "test", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
                       "users": [{"name": "admin", "user": {"token": self.token}}],
                       "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}]}, out)
        store, peer = (f"http://127.0.0.1:{PORT + add}" for add in (1, 2))
        self.start_one("etcd", "etcd", "--data-dir", "etcd", "--listen-client-urls", store, "--advertise-client-urls", store,
                       "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                       f"default={peer}")
        self.make_authority_of_people()
        api = self.start_api_server()
        self.start_one("controllers", f"{self.binaries}/kube-controller-manager", "--kubeconfig", self.kubeconfig,
                       "--service-account-private-key-file=sa.key", "--root-ca-file=certs/apiserver.crt", "--use-service-account-credentials", "--port=0",
                       f"--secure-port={PORT + 3}", "--cert-dir=certs-controllers", "--leader-elect=false")
        self.start_one("scheduler", f"{self.binaries}/kube-scheduler", "--kubeconfig", self.kubeconfig, "--port=0",
                       f"--secure-port={PORT + 4}", "--cert-dir=certs-scheduler", "--leader-elect=false")
        return api

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Lane:
    """The test, in the order in which it runs."""

    def __init__(self, options):
        self.options = options
        self.folder = options.work
        self.plane = ControlPlane(options.kubernetes, os.path.join(self.folder, "plane"))
        self.api = None
        self.kubelet = None

    def kubectl(self, *words, text=None, is_refused=False):
        done = subprocess.run([self.options.kubectl, "--kubeconfig", self.plane.kubeconfig, *words], input=text, text=True,
                              capture_output=True, timeout=120, check=False)
        if is_refused:
            check(done.returncode != 0, f"kubectl {' '.join(words)} was not refused")
        else:
            check(done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout if not is_refused else done.stderr

    def kustomize(self, folder):
        done = subprocess.run([self.options.kustomize, "build", folder], capture_output=True, text=True, timeout=60,
                              check=False)
        check(done.returncode == 0, f"kustomize build {folder}: {done.stderr.strip()}")
        return done.stdout

    def for_this_server(self, text):
        """Writes policy/v1 as the API server of 1.20 knows it. The npm validators check policy/v1 itself."""
        return text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")

    def build(self):
        say("kustomize builds each overlay")
        deploy = os.path.join(ROOT, "deploy/kubernetes")
        self.built = {name: self.kustomize(os.path.join(deploy, "overlays", name)) for name in ("single-node", "gpu")}
        # The component is used as a site would use it.
        site = os.path.join(self.folder, "site")
        shutil.copytree(deploy, os.path.join(site, "kubernetes"))
        with open(os.path.join(site, "kustomization.yaml"), "w", encoding="utf-8") as out:
            yaml.safe_dump({"resources": ["kubernetes/overlays/single-node"],
                            "components": ["kubernetes/components/site-certificate"]}, out)
        self.built["site-certificate"] = self.kustomize(site)
        # A site that lets pods of a namespace of its own sign in.
        with open(os.path.join(site, "kustomization.yaml"), "w", encoding="utf-8") as out:
            more = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--kubernetes_users=ml:*"}]
            yaml.safe_dump({"resources": ["kubernetes/overlays/gpu"], "patches": [
                {"target": {"kind": "StatefulSet", "name": "trainyard-server"}, "patch": json.dumps(more)}]}, out)
        self.built["site-tokens"] = self.kustomize(site)
        # A site whose server asks the cluster for workers.
        with open(os.path.join(site, "kustomization.yaml"), "w", encoding="utf-8") as out:
            yaml.safe_dump({"namespace": "trainyard", "resources": ["kubernetes/base"], "components": [
                "kubernetes/components/tokens", "kubernetes/components/provider"]}, out)
        self.built["site-provider"] = self.kustomize(site)
        # A site whose server is backed up to a bucket all the time.
        with open(os.path.join(site, "kustomization.yaml"), "w", encoding="utf-8") as out:
            yaml.safe_dump({"resources": ["kubernetes/overlays/single-node"],
                            "components": ["kubernetes/components/bucket-backup"]}, out)
        self.built["bucket-backup"] = self.kustomize(site)
        for name, text in self.built.items():
            with open(os.path.join(self.folder, f"{name}.yaml"), "w", encoding="utf-8") as out:
                out.write(text)
            print(f"   {name}: {len(list(yaml.safe_load_all(text)))} objects")

    def write_manifests(self):
        """Has the adapter of providers write what it asks for."""
        self.manifests = []
        test = os.path.join(self.options.bin, "kubernetes_cluster_test")
        if not os.path.exists(test):
            say("SKIPPED: what providers ask for, since kubernetes_cluster_test is not built")
            return
        file = os.path.join(self.folder, "manifests.json")
        subprocess.run([test, "--gtest_filter=Manifests.*"], check=True, capture_output=True, timeout=60,
                       env={**os.environ, "KUBERNETES_MANIFESTS": file})
        self.manifests = json.load(open(file, encoding="utf-8"))
        check([each["kind"] for each in self.manifests] == ["Pod", "Secret", "Job"], "there are other manifests")

    def validate(self):
        if not self.options.validators:
            say("SKIPPED: schemas of newer versions, since the npm package kubernetes-models is not there")
            return
        say("schemas of newer versions accept each object, and refuse wrong ones")
        files = [os.path.join(self.folder, f"{name}.yaml") for name in self.built]
        documents = [document for file in files for document in yaml.safe_load_all(open(file, encoding="utf-8"))]
        documents += self.manifests
        done = subprocess.run(["node", os.path.join(ROOT, "tests/kubernetes/validate.mjs")], input=json.dumps(documents),
                              capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "NODE_MODULES": self.options.validators})
        print("   " + done.stdout.strip().replace("\n", "\n   "))
        check(done.returncode == 0, f"the schemas refuse an object: {done.stdout}{done.stderr}")

    def dry_run(self):
        say("the API server accepts each overlay, and a word that it does not know is refused")
        self.kubectl("create", "namespace", "trainyard")
        for name, text in self.built.items():
            self.kubectl("apply", "--dry-run=server", "-f", "-", text=self.for_this_server(text))
        for each in self.manifests:
            # 1.20 has no Indexed Jobs.
            if each["kind"] != "Job":
                self.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(each))
        wrong = self.for_this_server(self.built["single-node"]).replace("terminationGracePeriodSeconds", "terminationGraceSeconds")
        said = self.kubectl("apply", "--dry-run=server", "-f", "-", text=wrong, is_refused=True)
        check("unknown field" in said, f"the refusal names no unknown field: {said}")

    def cluster_test(self):
        """Runs what a provider does with a fake of the API server against the real one, with the rights of the component."""
        test = os.path.join(self.options.bin, "kubernetes_cluster_test")
        if not os.path.exists(test):
            say("SKIPPED: the adapter and a real API server, since kubernetes_cluster_test is not built")
            return
        say("the adapter and the real API server agree, with the rights of the component provider alone")
        role = next(each for each in yaml.safe_load_all(self.built["site-provider"])
                    if each["kind"] == "Role" and each["metadata"]["name"] == "trainyard-pilots")
        self.api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "provider-of-the-test"},
            "rules": role["rules"]})
        self.kubectl("create", "namespace", "pilots")
        self.kubectl("-n", "pilots", "create", "serviceaccount", "trainyard-server")
        # Each test has a namespace of its own, so that the rights are for all of them.
        self.kubectl("create", "clusterrolebinding", "provider-of-the-test", "--clusterrole=provider-of-the-test",
                     "--serviceaccount=pilots:trainyard-server")
        restarted = os.path.join(self.folder, "restarted")
        program = os.path.join(self.folder, "restart")
        with open(program, "w", encoding="utf-8") as out:
            out.write(f"#!/bin/sh\nrm -f {restarted}\nkill -USR1 {os.getpid()}\n"
                      f"while [ ! -e {restarted} ]; do sleep 0.1; done\n")
        os.chmod(program, 0o755)

        def restart(*_):
            self.plane.restart_api_server()
            open(restarted, "w", encoding="utf-8").close()

        signal.signal(signal.SIGUSR1, restart)
        token = open(self.token("pilots", "trainyard-server", "https://kubernetes.default"), encoding="utf-8").read()
        done = subprocess.run(
            [test, "--gtest_filter=Real/*", "--gtest_brief=1"], capture_output=True, text=True, timeout=400, check=False,
            env={**os.environ, "KUBERNETES_URL": self.plane.url.replace("127.0.0.1", f"{NODE_CIDR}.1"),
                 "KUBERNETES_CA": os.path.join(self.plane.folder, "certs/apiserver.crt"), "KUBERNETES_ADMIN": self.plane.token,
                 "KUBERNETES_SERVER": token, "KUBERNETES_SPACE": "pilots", "KUBERNETES_RESTART": program})
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        check(done.returncode == 0, f"kubernetes_cluster_test:\n{done.stdout[-6000:]}{done.stderr[-2000:]}")
        print("   " + done.stdout.strip().rsplit("\n", 1)[-1])

    def start_node(self):
        images = {}
        for name in ("server", "worker"):
            words = entrypoint_of(os.path.join(ROOT, f"deploy/docker/{name}.Containerfile"))
            images[f"trainyard-{name}:0.1.0"] = words
        self.kubelet = Kubelet(self.api, os.path.join(self.folder, "node"), self.options.bin, images,
                               labels={"trainyard.dev/worker": "gpu"}, gpus=8, api_port=PORT)

    def ready(self, name, seconds=60):
        def look():
            pod = self.api.find(f"{SPACE}/pods/{name}")
            if pod is None or "deletionTimestamp" in pod["metadata"]:
                return None
            conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
            return pod if conditions.get("Ready") == "True" else None

        return within(seconds, look, f"the pod {name} gets ready")

    def in_server(self, *words):
        pod = self.kubelet.pod("trainyard-server-0")
        is_well, said = pod.containers[0].execute(["trainyard", *words], 30)
        check(is_well, f"trainyard {' '.join(words)}: {said}")
        return said

    def invite(self, *words):
        """Runs invite.sh. Its `kubectl exec` goes through the fake kubelet, which serves no exec of the API."""
        stand_in = os.path.join(self.folder, "kubectl")
        pod = self.kubelet.pod("trainyard-server-0")
        container = pod.containers[0]
        enter = ["nsenter", f"--target={container.pid}", "--mount", "--pid", "--net", "--ipc", "--root", "--wd=/", "env", "-i",
                 *(f"{name}={value}" for name, value in container.environment.items()), *container.rights()]
        with open(stand_in, "w", encoding="utf-8") as out:
            out.write("#!/usr/bin/env bash\nfor ((i = 1; i <= $#; i++)); do\n  if [ \"${!i}\" = exec ]; then\n"
                      "    while [ \"$1\" != -- ]; do shift; done; shift\n    exec " + " ".join(f"'{w}'" for w in enter) +
                      " \"$@\"\n  fi\ndone\n" + f"exec {self.options.kubectl} --kubeconfig {self.plane.kubeconfig} \"$@\"\n")
        os.chmod(stand_in, 0o755)
        done = subprocess.run([os.path.join(ROOT, "deploy/kubernetes/invite.sh"), *words], capture_output=True, text=True,
                              env={**os.environ, "KUBECTL": stand_in}, timeout=60, check=False)
        check(done.returncode == 0, f"invite.sh: {done.stderr}")
        print("   " + done.stdout.strip().replace("\n", "\n   "))

    def job(self, name):
        return json.loads(self.client("show", name, "-o", "json"))

    def client(self, *words, program="trainyard", home="home", is_refused=False):
        """Runs the command line as a person of the cluster: through the Service, with a token, in a pod's network."""
        pod = self.kubelet.pod("trainyard-worker-0") or self.kubelet.pod("trainyard-server-0")
        home = os.path.join(self.folder, home)
        hosts = self.kubelet.hosts_file
        inside = ["ip", "netns", "exec", pod.network, "bwrap", "--dev-bind", "/", "/", "--ro-bind", hosts, "/etc/hosts",
                  "--ro-bind", "/dev/null", "/etc/resolv.conf",
                  "--setenv", "HOME", home, "--unsetenv", "XDG_CONFIG_HOME", os.path.join(self.options.bin, program)]
        done = subprocess.run([*inside, *words], capture_output=True, text=True, timeout=120, check=False)
        check((done.returncode != 0) == is_refused, f"{program} {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stderr if is_refused else done.stdout

    def step(self, name):
        return int(self.job(name).get("progress", {}).get("step", 0))

    def single_node(self):
        say("the overlay single-node: the server gets ready")
        self.kubectl("apply", "-f", "-", text=self.for_this_server(self.built["single-node"]))
        self.ready("trainyard-server-0")
        say("the worker waits for its invitation, joins with it, and gets ready")
        within(30, lambda: self.kubelet.pod("trainyard-worker-0") is not None, "the worker is placed")
        within(20, lambda: "Secret" in self.kubelet.pod("trainyard-worker-0").waits_for, "the worker waits for the Secret")
        self.invite("trainyard-worker-0")
        self.ready("trainyard-worker-0")
        say("a person signs in through the Service, and a job runs to its end")
        made = json.loads(self.in_server("workers", "invite", "nobody", "-o", "json"))
        token = self.in_server("tokens", "create", "--user", "anna", "-q").strip().split()[-1]
        file = os.path.join(self.folder, "token")
        with open(file, "w", encoding="utf-8") as out:
            os.chmod(file, 0o600)
            out.write(token + "\n")
        self.client("login", "trainyard-server:7070", "--fingerprint", made["fingerprint"], "--token-file", file)
        spec = os.path.join(ROOT, "jobs/mlp-glyphs.yaml")
        self.client("submit", spec, "--set", "train.epochs=2")
        within(90, lambda: self.job("last")["state"].endswith("SUCCEEDED"), "the job succeeds")

    def restarts(self):
        spec = os.path.join(ROOT, "jobs/mlp-glyphs.yaml")
        self.client("submit", spec, "--set", "train.epochs=3000")
        within(60, lambda: self.step("last") > 50, "the second job makes steps")
        say("the server's pod is deleted in the middle of a job, which goes on")
        old = self.api.get(f"{SPACE}/pods/trainyard-server-0")["metadata"]["uid"]
        self.api.delete(f"{SPACE}/pods/trainyard-server-0")
        within(60, lambda: (self.api.find(f"{SPACE}/pods/trainyard-server-0") or {"metadata": {"uid": old}})["metadata"]["uid"]
               != old, "a new pod of the server is made")
        self.ready("trainyard-server-0")
        before = within(60, lambda: self.try_step(), "the server answers through the Service again")
        within(60, lambda: (self.try_step() or 0) > before, "the job makes further steps")
        check(self.job("last")["attempt"] == 1, "the job was started again")

        say("the worker's pod is evicted in the middle of a job, which goes on in the new pod without a lost step")
        name = self.job("last")["name"]
        old = self.api.get(f"{SPACE}/pods/trainyard-worker-0")["metadata"]["uid"]
        eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction",
                    "metadata": {"name": "trainyard-worker-0", "namespace": "trainyard"}}
        self.api.create(f"{SPACE}/pods/trainyard-worker-0/eviction", eviction)
        seen = 0

        def is_replaced():
            nonlocal seen
            job = self.call("JobService/GetJob", {"name": name})
            if job["attempt"] == 1:
                seen = max(seen, int(job.get("progress", {}).get("step", 0)))
            pod = self.api.find(f"{SPACE}/pods/trainyard-worker-0")
            return pod is not None and pod["metadata"]["uid"] != old

        within(60, is_replaced, "a new pod of the worker is made")
        check(any("worker ended within its grace period, with 0" in line for line in self.kubelet.lines),
              "the worker did not end by itself")
        self.ready("trainyard-worker-0")
        self.went_on(2, seen)
        workers = json.loads(self.client("workers", "ls", "-o", "json"))
        check([worker["name"] for worker in workers] == ["workers/trainyard-worker-0"],
              f"the new pod is another worker: {workers}")

        say("the worker's pod is killed without a warning, and the job goes on from its last checkpoint")
        pod = self.kubelet.pod("trainyard-worker-0")
        pod.containers[0].signal(signal.SIGKILL)
        self.went_on(3, may_lose=True)
        self.client("cancel", "last")

    def gang(self):
        say("a gang spans two pods, whose ranks reach each other at the addresses of the pods")
        self.kubectl("-n", "trainyard", "scale", "statefulset", "trainyard-worker", "--replicas=2")
        within(30, lambda: self.kubelet.pod("trainyard-worker-1") is not None, "the second worker is placed")
        self.invite("trainyard-worker-1")
        self.ready("trainyard-worker-1", 90)
        rows = json.loads(self.client("workers", "ls", "-o", "json"))
        devices = sum(len(row["devices"]) for row in rows)
        self.client("submit", os.path.join(ROOT, "jobs/mlp-glyphs.yaml"), "--devices", str(devices), "--set", "train.epochs=1",
                    "--set", "train.global_batch=64")
        job = within(120, self.ended_job, "the gang ends")
        check(job["state"].endswith("SUCCEEDED"), f"the gang has failed: {job}")
        workers = {rank["worker"] for rank in job["placement"]}
        check(len(workers) == 2, f"the gang was on {workers}")
        print(f"   {devices} ranks on {' and '.join(sorted(workers))}")

    def ended_job(self):
        job = self.job("last")
        return job if job["state"].rsplit("_", 1)[1] in ("SUCCEEDED", "FAILED", "CANCELLED") else None

    def site_certificate(self):
        say("with the component site-certificate, the server shows the certificate of a Secret")
        files = [os.path.join(self.folder, name) for name in ("tls.key", "tls.crt")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                        "7", "-subj", "/CN=site", "-addext", "subjectAltName=DNS:trainyard-server", "-keyout", files[0],
                        "-out", files[1]], check=True, capture_output=True)
        self.kubectl("-n", "trainyard", "create", "secret", "tls", "trainyard-tls", f"--key={files[0]}", f"--cert={files[1]}")
        self.kubectl("apply", "-f", "-", text=self.for_this_server(self.built["site-certificate"]))
        # The update strategy is OnDelete.
        self.api.delete(f"{SPACE}/pods/trainyard-server-0")
        within(60, lambda: self.kubelet.pod("trainyard-server-0") is None, "the pod of the server ends")
        pod = self.ready("trainyard-server-0")
        shown = subprocess.run(["ip", "netns", "exec", self.kubelet.pod("trainyard-server-0").network, "openssl", "s_client",
                                "-connect", f"{pod['status']['podIP']}:7070", "-servername", "trainyard-server"], input="",
                               capture_output=True, text=True, timeout=20, check=False).stdout
        check("CN = site" in shown, f"the server shows another certificate: {shown[:600]}")

    def try_step(self):
        try:
            return self.step("last")
        except Failed:
            return 0

    def call(self, method, request):
        """Calls the API over HTTP, on the socket of the server's pod."""
        volume = self.kubelet.pod("trainyard-server-0").volumes["run"]
        connection = http.client.HTTPConnection("x", timeout=20)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(os.path.join(volume, "trainyard.sock"))
        connection.request("POST", f"/trainyard.v1.{method}", json.dumps(request), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        check(answer.status == 200, f"{method}: {text}")
        return json.loads(text)

    def resumed_from(self, job, number):
        attempts = self.call("JobService/ListAttempts", {"parent": job["name"]})["attempts"]
        return int(attempts[number - 1].get("resumed_from_step", 0))

    def went_on(self, number, reached=0, may_lose=False):
        """Waits for this attempt of the last job, and checks from which step it began."""

        def look():
            nonlocal reached
            job = self.job("last")
            step = int(job.get("progress", {}).get("step", 0))
            if job["attempt"] < number:
                reached = max(reached, step)
            return job if job["attempt"] == number and job["state"].endswith("RUNNING") else None

        job = within(120, look, f"attempt {number} runs")
        begun = self.resumed_from(job, number)
        print(f"   attempt {number - 1} was seen at step {reached}, and attempt {number} began from step {begun}")
        check(begun > 0, f"attempt {number} began from nothing")
        check(may_lose or begun >= reached > 0, f"attempt {number} began from step {begun}, and {reached} was reached before")
        within(60, lambda: self.step("last") > begun, "the job makes further steps")

    def gpu(self):
        say("the overlay gpu: a DaemonSet's worker has the name of its node and outlives its pod")
        self.kubectl("-n", "trainyard", "delete", "statefulset,pdb", "trainyard-worker", "--wait=false")
        within(60, lambda: self.kubelet.pod("trainyard-worker-0") is None, "the worker of the other overlay leaves")
        # The fingerprint is all that the pods need of the script.
        self.kubectl("-n", "trainyard", "delete", "secret", "trainyard-invitations")
        self.kubectl("apply", "-f", "-", text=self.for_this_server(self.built["site-tokens"]))
        # The update strategy is OnDelete.
        self.api.delete(f"{SPACE}/pods/trainyard-server-0")
        within(60, lambda: self.kubelet.pod("trainyard-server-0") is None, "the pod of the server ends")
        self.ready("trainyard-server-0")
        pod = within(60, self.daemon_pod, "the DaemonSet's pod is placed")
        self.invite("--fingerprint")
        secret = self.api.get(f"{SPACE}/secrets/trainyard-invitations")["data"]
        check(list(secret) == ["fingerprint"], f"there are invitations: {list(secret)}")
        say("the worker joins with the token of its pod, and nobody has invited it")
        self.ready(pod.name, 90)
        fingerprint = base64.b64decode(secret["fingerprint"]).decode()
        name = f"workers/{self.kubelet.node.replace('.', '-')}"
        first = self.worker(name)
        check(first is not None, f"there is no {name}")
        self.api.delete(f"{SPACE}/pods/{pod.name}")
        again = within(60, lambda: self.daemon_pod(other_than=pod.name), "the DaemonSet makes a new pod")
        self.ready(again.name, 90)
        second = self.worker(name)
        check(second["create_time"] == first["create_time"], "the new pod is another worker")
        check(again.containers[0].restarts == 0, "the new pod needed an invitation")
        self.workers_of_others(again, fingerprint)
        self.clients(fingerprint)

    def token(self, space, account, audience):
        """Asks for a token of a service account, as `kubectl create token` does, and returns its file."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                   "spec": {"audiences": [audience], "expirationSeconds": 600}}
        made = self.api.create(f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token", request)
        file = os.path.join(self.folder, f"token-{space}-{account}-{audience.replace('/', '-')}")
        with open(file, "w", encoding="utf-8") as out:
            out.write(made["status"]["token"])
        return file

    def workers_of_others(self, pod, fingerprint):
        say("a token of a pod lets no other worker join, and neither does one of another account, audience or of no pod")
        own = os.path.join(pod.volumes["token"], "token")
        self.kubectl("-n", "trainyard", "create", "serviceaccount", "other")
        node = self.kubelet.node.replace(".", "-")
        cases = [("node-2", own, "the token of the pod is for worker"),
                 # The pod's own worker has used it up, with a key of its own.
                 (node, own, "used up"),
                 (node, self.token("trainyard", "trainyard-worker", "trainyard-worker"), "bound to no pod"),
                 (node, self.token("trainyard", "other", "trainyard-worker"), "may not be workers"),
                 (node, self.token("trainyard", "trainyard-worker", "trainyard"), "another audience")]
        for number, (name, file, why) in enumerate(cases):
            state = os.path.join(self.folder, f"stranger-{number}")
            said = self.client("--server=tls://trainyard-server:7070", f"--name={name}", f"--state_dir={state}",
                               f"--join_token_file={file}", f"--server_fingerprint={fingerprint}",
                               program="trainyard-worker", is_refused=True)
            check(why in said, f"{name} with {file}: {said}")
        for path in (os.path.join(self.folder, f"stranger-{number}/tls/worker.pem") for number in range(len(cases))):
            check(not os.path.exists(path), f"there is a certificate: {path}")

    def clients(self, fingerprint):
        say("a pod of a permitted account signs in with its token, and others do not")
        self.kubectl("create", "namespace", "ml")
        self.kubectl("-n", "ml", "create", "serviceaccount", "builder")
        login = ("login", "trainyard-server:7070", "--fingerprint", fingerprint, "--token-file")
        file = self.token("ml", "builder", "trainyard")
        self.client(*login, file, home="pod")
        who = json.loads(self.client("whoami", "-o", "json", home="pod"))
        check(who["user"] == "builder@ml", f"the pod is {who}")
        # The file is read again. A token that the cluster has not made lets nobody in.
        good = open(file, encoding="utf-8").read()
        with open(file, "w", encoding="utf-8") as out:
            head, claims, signature = good.split(".")
            out.write(".".join((head, claims, signature[::-1])))
        said = self.client("whoami", home="pod", is_refused=True)
        check("does not vouch" in said, f"a forged token: {said}")
        with open(file, "w", encoding="utf-8") as out:
            out.write(open(self.token("ml", "default", "trainyard"), encoding="utf-8").read())
        who = json.loads(self.client("whoami", "-o", "json", home="pod"))
        check(who["user"] == "default@ml", f"the pod is {who}")
        for space, account, audience, why in (("ml", "builder", "trainyard-worker", "another audience"),
                                              ("ml", "builder", "https://kubernetes.default", "another audience"),
                                              ("default", "default", "trainyard", "may not sign in")):
            said = self.client(*login, self.token(space, account, audience), home="refused", is_refused=True)
            check(why in said, f"{space}:{account} for {audience}: {said}")
        check(not os.path.exists(os.path.join(self.folder, "refused/.config/trainyard/servers")), "a refused token was stored")

    def worker(self, name):
        rows = json.loads(self.in_server("workers", "ls", "-o", "json"))
        return next((row for row in rows if row["name"] == name), None)

    def daemon_pod(self, other_than=""):
        for pod in list(self.kubelet.pods.values()):
            is_meant = pod.name.startswith("trainyard-worker-") and pod.name not in ("trainyard-worker-0", other_than)
            if is_meant and not pod.deleted.is_set():
                return pod
        return None

    def pod_of_pilots(self):
        """Returns the pods of pilots, by name."""
        items = self.api.items(f"{SPACE}/pods?labelSelector=trainyard.dev/provider%3Dgpu")
        return {each["metadata"]["name"]: each for each in items}

    def add_provider(self, *words):
        """Describes a pod in a file of the server's pod, and adds a provider."""
        volume = self.kubelet.pod("trainyard-server-0").volumes["tmp"]
        with open(os.path.join(volume, "pod.yaml"), "w", encoding="utf-8") as out:
            os.chmod(out.name, 0o644)
            yaml.safe_dump({"metadata": {"labels": {"team": "vision"}}, "spec": {
                "containers": [{"name": "worker", "image": "trainyard-worker:0.1.0",
                                "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                    "capabilities": {"drop": ["ALL"]}},
                                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}],
                "volumes": [{"name": "tmp", "emptyDir": {}}]}}, out)
        return self.in_server("providers", "add", "gpu", "--kubernetes", "/tmp/pod.yaml", "--devices", "1", "--cpus", "1",
                              "--memory", "1 GiB", "--max", "2", "--idle-time", "5s", "--time-limit", "30m",
                              "--server-address", "tls://trainyard-server.trainyard:7070", *words)

    def pilots(self):
        say("the server asks its cluster for workers when a job waits, and they go when none does")
        self.kubectl("-n", "trainyard", "delete", "daemonset", "trainyard-worker")
        within(60, lambda: self.daemon_pod() is None, "the DaemonSet's worker leaves")
        self.kubectl("apply", "-f", "-", text=self.for_this_server(self.built["site-provider"]))
        self.ready("trainyard-server-0")
        self.add_provider("--namespace", "trainyard", "--dry-run")
        check(not self.pod_of_pilots(), "a dry run has made a pod")
        self.add_provider("--namespace", "trainyard")
        check(not self.pod_of_pilots(), "there is a pilot, and no job")
        spec = os.path.join(ROOT, "jobs/mlp-glyphs.yaml")
        started = time.monotonic()
        self.in_server_submit(spec, "--devices", "1", "--set", "train.epochs=2")
        job = within(120, self.ended_job_of_server, "the job that brings a pod ends")
        check(job["state"].endswith("SUCCEEDED"), f"the job has failed: {job}")
        shown = json.loads(self.in_server("providers", "show", "gpu", "-o", "json"))
        print(f"   the job ended after {time.monotonic() - started:.1f} s, on {shown['pilots'][0]['name']}")
        within(90, lambda: not self.pod_of_pilots(), "the idle pod goes")
        within(30, lambda: not self.api.items(f"{SPACE}/secrets?labelSelector=trainyard.dev/provider%3Dgpu"),
               "its Secret goes with it")

        say("a pod is evicted in the middle of a job, which goes on in another one without a lost step")
        self.in_server_submit(spec, "--devices", "1", "--set", "train.epochs=3000")
        within(120, lambda: self.server_step() > 50, "the longer job makes steps")
        first = next(iter(self.pod_of_pilots()))
        self.api.create(f"{SPACE}/pods/{first}/eviction", {
            "apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": first, "namespace": "trainyard"}})
        reached = 0

        def is_elsewhere():
            nonlocal reached
            job = self.job_of_server()
            if job["attempt"] == 1:
                reached = max(reached, int(job.get("progress", {}).get("step", 0)))
            return job if job["attempt"] == 2 and job["state"].endswith("RUNNING") else None

        job = within(180, is_elsewhere, "the job runs again")
        begun = self.resumed_from(job, 2)
        check(begun >= reached > 0, f"attempt 2 began from step {begun}, and {reached} was reached before")
        second = job["placement"][0]["worker"]
        check(first not in second, f"the job is still on {second}")
        print(f"   stopped at step {reached} on {first}, went on at step {begun} on {second}")
        within(60, lambda: self.server_step() > begun, "the job makes further steps")

        say("a server that is deleted finds its pilots again")
        self.api.delete(f"{SPACE}/pods/trainyard-server-0")
        within(60, lambda: self.kubelet.pod("trainyard-server-0") is None, "the pod of the server ends")
        self.ready("trainyard-server-0")
        within(60, lambda: self.try_server_step() > begun, "the job makes further steps")
        check(self.job_of_server()["attempt"] == 2, "the job was started again")
        self.in_server("cancel", self.job_of_server()["name"])
        self.in_server("providers", "rm", "gpu")
        within(120, lambda: not json.loads(self.in_server("providers", "ls", "-o", "json")), "the provider goes")
        check(not self.pod_of_pilots(), "pods are left")

        say("a kubeconfig with a certificate leads to the cluster as well, and one that is unsafe is refused")
        volume = self.kubelet.pod("trainyard-server-0").volumes["tmp"]
        names = {"authority": "certs/apiserver.crt", "certificate": "olga.crt", "key": "olga.key"}
        pem = {name: base64.b64encode(open(os.path.join(self.plane.folder, path), "rb").read()).decode()
               for name, path in names.items()}
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "lab",
                  "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "olga", "namespace": "trainyard"}}],
                  "clusters": [{"name": "lab", "cluster": {"server": f"https://{NODE_CIDR}.1:{PORT}",
                                                            "certificate-authority-data": pem["authority"]}}],
                  "users": [{"name": "olga", "user": {"client-certificate-data": pem["certificate"],
                                                      "client-key-data": pem["key"]}}]}
        file = os.path.join(volume, "kubeconfig")
        with open(file, "w", encoding="utf-8") as out:
            json.dump(config, out)
        os.chmod(file, 0o644)
        self.add_provider("--kubeconfig", "/tmp/kubeconfig", "--dry-run")
        os.chmod(file, 0o666)
        pod = self.kubelet.pod("trainyard-server-0")
        is_well, said = pod.containers[0].execute(
            ["trainyard", "providers", "add", "x", "--kubernetes", "/tmp/pod.yaml", "--kubeconfig", "/tmp/kubeconfig"], 30)
        check(not is_well and "can write it" in said, f"an unsafe kubeconfig: {said}")

    def in_server_submit(self, spec, *words):
        volume = self.kubelet.pod("trainyard-server-0").volumes["tmp"]
        shutil.copyfile(spec, os.path.join(volume, "job.yaml"))
        os.chmod(os.path.join(volume, "job.yaml"), 0o644)
        # A warning comes after the name.
        self.submitted = self.in_server("submit", "/tmp/job.yaml", "-q", "-o", "name", *words).split()[0]

    def job_of_server(self):
        return json.loads(self.in_server("show", self.submitted, "-o", "json"))

    def ended_job_of_server(self):
        job = self.job_of_server()
        return job if job["state"].rsplit("_", 1)[1] in ("SUCCEEDED", "FAILED", "CANCELLED") else None

    def server_step(self):
        return int(self.job_of_server().get("progress", {}).get("step", 0))

    def try_server_step(self):
        try:
            return self.server_step()
        except Failed:
            return 0

    def run(self):
        self.build()
        self.write_manifests()
        self.validate()
        say("a real control plane starts")
        started = time.monotonic()
        self.api = self.plane.start()
        print(f"   {self.api.get('/version')['gitVersion']}, after {time.monotonic() - started:.1f} s")
        self.dry_run()
        self.start_node()
        self.cluster_test()
        self.single_node()
        self.restarts()
        self.gang()
        self.gpu()
        self.pilots()
        self.site_certificate()
        say("kubernetes: all is well")

    def stop(self):
        if self.kubelet is not None:
            self.kubelet.stop()
        self.plane.stop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--kubernetes", required=True, help="folder of kube-apiserver and the others")
    parser.add_argument("--kubectl", required=True)
    parser.add_argument("--kustomize", required=True)
    parser.add_argument("--validators", default="", help="folder node_modules with kubernetes-models")
    parser.add_argument("--work", required=True, help="folder that is made anew")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    os.makedirs(options.work)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    lane = Lane(options)
    try:
        lane.run()
        return 0
    except Failed as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        if lane.kubelet is not None:
            for pod in list(lane.kubelet.pods.values()):
                for container in pod.containers:
                    with open(container.log_path(), encoding="utf-8", errors="replace") as log:
                        print(f"--- {pod.name}/{container.name}\n{log.read()[-3000:]}", file=sys.stderr)
        return 1
    finally:
        lane.stop()


if __name__ == "__main__":
    sys.exit(main())
