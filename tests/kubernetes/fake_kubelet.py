"""A node of Kubernetes without containers: it runs the programs of pods as processes.

The pods come from a real API server, and each gets what its spec says: an address of its own behind a bridge, arguments and
environment with $(NAMES) replaced, volumes at their paths with the rights that fsGroup gives, a read-only root, the user
and the capabilities of its security context, init containers, probes, preStop, SIGTERM, the grace period. The sandbox is
that of bubblewrap. There are no images: what an image would start is read from the Containerfiles.
"""

import base64
import datetime
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from api import ApiError

NODE_CIDR = "10.88.0"


def entrypoint_of(containerfile):
    """Returns the words of ENTRYPOINT, ENV and CMD of the last stage."""
    text = re.sub(r"\\\n", " ", open(containerfile, encoding="utf-8").read())
    last = text[text.rindex("\nFROM "):]
    words = json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", last, re.M).group(1))
    command = json.loads(re.search(r"^CMD (\[.*\])$", last, re.M).group(1))
    env = dict(pair.split("=", 1) for line in re.findall(r"^ENV (.*)$", last, re.M) for pair in line.split())
    return words, command, env


def expand(text, env):
    """Replaces $(NAME) as a kubelet does: an unknown one stays as it is, and $$ is one dollar."""
    return re.sub(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)",
                  lambda found: "$" if found.group(0) == "$$" else env.get(found.group(1), found.group(0)), text)


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


class Container:
    """One process with its sandbox."""

    def __init__(self, pod, spec, is_init):
        self.pod = pod
        self.spec = spec
        self.is_init = is_init
        self.name = spec["name"]
        self.process = None
        self.pid = 0
        self.restarts = 0
        self.started = 0.0
        self.exit_code = None
        self.is_ready = False
        self.has_started = False
        self.probe_due = {}
        self.probe_failures = {}
        self.environment = {}
        self.next_start = 0.0
        self.backoff = 1.0

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def log_path(self):
        return os.path.join(self.pod.folder, f"{self.name}.log")

    def security(self):
        return {**self.pod.spec.get("securityContext", {}), **self.spec.get("securityContext", {})}

    def rights(self):
        """Returns the words that take the user and the capabilities of the security context."""
        context = self.security()
        user = int(context.get("runAsUser", 0))
        group = int(context.get("runAsGroup", 0))
        if context.get("runAsNonRoot") and user == 0:
            raise RuntimeError(f"container {self.name}: runAsNonRoot, and the user is root")
        capabilities = context.get("capabilities", {})
        kept = "-all" if "ALL" in capabilities.get("drop", []) else "+all"
        for added in capabilities.get("add", []):
            kept += f",+{added.lower()}"
        groups = sorted({int(group), *( [int(context["fsGroup"])] if "fsGroup" in context else [])})
        words = ["setpriv", f"--reuid={user}", f"--regid={group}", "--groups=" + ",".join(map(str, groups)),
                 f"--inh-caps={kept}", f"--bounding-set={kept}"]
        if context.get("allowPrivilegeEscalation") is False:
            words.append("--no-new-privs")
        return words

    def environment_of(self):
        kubelet, pod = self.pod.kubelet, self.pod
        env = {"PATH": "/image:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": pod.name}
        env.update(kubelet.images[self.spec["image"]][2])
        # A kubelet names the API server to each pod, whatever enableServiceLinks says.
        env.update({"KUBERNETES_SERVICE_HOST": f"{NODE_CIDR}.1", "KUBERNETES_SERVICE_PORT": str(kubelet.api_port)})
        for source in self.spec.get("envFrom", []):
            name = source["configMapRef"]["name"]
            env.update(kubelet.api.get(f"/api/v1/namespaces/{pod.namespace}/configmaps/{name}").get("data", {}))
        for entry in self.spec.get("env", []):
            env[entry["name"]] = self.value_of(entry, env)
        return env

    def value_of(self, entry, env):
        if "value" in entry:
            return expand(entry["value"], env)
        source = entry["valueFrom"]
        pod, api = self.pod, self.pod.kubelet.api
        if "fieldRef" in source:
            value = pod.record
            for part in source["fieldRef"]["fieldPath"].split("."):
                value = value[part]
            return str(value)
        if "secretKeyRef" in source:
            key = source["secretKeyRef"]
            secret = api.find(f"/api/v1/namespaces/{pod.namespace}/secrets/{key['name']}")
            if secret is None or key["key"] not in secret.get("data", {}):
                raise RuntimeError(f"there is no key {key['key']} in the Secret {key['name']}")
            return base64.b64decode(secret["data"][key["key"]]).decode()
        key = source["configMapKeyRef"]
        return api.get(f"/api/v1/namespaces/{pod.namespace}/configmaps/{key['name']}")["data"][key["key"]]

    def sandbox(self):
        pod = self.pod
        words = ["ip", "netns", "exec", pod.network, "bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                 "--hostname", pod.name[:60], "--as-pid-1", "--die-with-parent", "--cap-add", "ALL",
                 "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc-of-host",
                 "--ro-bind", pod.kubelet.binaries, "/image"]
        # bubblewrap makes folders above a mount for root alone.
        folders = {"/etc", "/run", "/var", "/tmp"}
        for mount in self.spec.get("volumeMounts", []):
            parts = mount["mountPath"].split("/")
            folders.update("/".join(parts[:count]) for count in range(2, len(parts)))
        for path in sorted(folders - {"/dev"}):
            words += ["--perms", "0755", "--dir", path]
        for name in ("bin", "sbin", "lib", "lib64"):
            words += ["--symlink", f"usr/{name}", f"/{name}"]
        for name in ("ld.so.cache", "ssl", "alternatives"):
            if os.path.exists(f"/etc/{name}"):
                words += ["--symlink", f"/etc-of-host/{name}", f"/etc/{name}"]
        for name in ("passwd", "group", "nsswitch.conf"):
            words += ["--ro-bind", os.path.join(pod.kubelet.folder, name), f"/etc/{name}"]
        words += ["--ro-bind", pod.kubelet.hosts_file, "/etc/hosts"]
        for mount in self.spec.get("volumeMounts", []):
            source = os.path.join(pod.volumes[mount["name"]], mount.get("subPath", ""))
            words += ["--ro-bind" if mount.get("readOnly") else "--bind", source, mount["mountPath"]]
        if self.security().get("readOnlyRootFilesystem"):
            words += ["--remount-ro", "/"]
        return words

    def command(self):
        words, arguments, _ = self.pod.kubelet.images[self.spec["image"]]
        if "command" in self.spec:
            words, arguments = self.spec["command"], []
        words = [*words, *self.spec.get("args", arguments)]
        words = [expand(word, self.environment) for word in words]
        # The programs of the image lie in one folder, and those of Debian in theirs.
        return [re.sub(r"^/usr/bin/(trainyard[a-z-]*)$", r"/image/\1", word) for word in words]

    def start(self):
        self.environment = self.environment_of()
        read, write = os.pipe()
        log = open(self.log_path(), "ab")
        words = [*self.sandbox(), "--info-fd", str(write), "--clearenv", "--chdir", "/"]
        for name, value in self.environment.items():
            words += ["--setenv", name, value]
        self.process = subprocess.Popen([*words, "--", *self.rights(), *self.command()], stdin=subprocess.DEVNULL,
                                        stdout=log, stderr=log, pass_fds=[write], start_new_session=True)
        os.close(write)
        log.close()
        with os.fdopen(read) as info:
            text = info.read()
        self.pid = json.loads(text)["child-pid"] if text.strip() else 0
        self.started = time.monotonic()
        self.exit_code = None
        self.is_ready = False
        self.has_started = "startupProbe" not in self.spec
        self.probe_due = {}
        self.probe_failures = {}

    def execute(self, words, timeout):
        """Runs a command in the container, as the container's user. Returns True if it succeeds in time."""
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--ipc", "--root", "--wd=/", "env", "-i",
                  *(f"{name}={value}" for name, value in self.environment.items()), *self.rights(), *words]
        try:
            done = subprocess.run(inside, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return False, "it takes too long"
        return done.returncode == 0, done.stdout + done.stderr

    def signal(self, number):
        if self.pid and self.is_running():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def look(self):
        """Runs the probes that are due."""
        now = time.monotonic()
        names = ["startupProbe"] if not self.has_started else ["livenessProbe", "readinessProbe"]
        for name in names:
            probe = self.spec.get(name)
            if probe is None or now < self.probe_due.get(name, self.started + probe.get("initialDelaySeconds", 0)):
                continue
            self.probe_due[name] = now + probe.get("periodSeconds", 10)
            is_well, said = self.execute(probe["exec"]["command"], probe.get("timeoutSeconds", 1))
            self.probe_failures[name] = 0 if is_well else self.probe_failures.get(name, 0) + 1
            has_failed = self.probe_failures[name] >= probe.get("failureThreshold", 3)
            if name == "startupProbe" and is_well:
                self.has_started = True
            if name == "readinessProbe":
                self.is_ready = is_well or (self.is_ready and not has_failed)
            elif has_failed:
                self.pod.say(f"{name} of {self.name} failed, so that it is killed: {said.strip()[-200:]}")
                self.signal(signal.SIGKILL)
        if self.has_started and "readinessProbe" not in self.spec:
            self.is_ready = True


class Pod:
    """A pod of this node, with a thread of its own."""

    def __init__(self, kubelet, record):
        self.kubelet = kubelet
        self.record = record
        self.spec = record["spec"]
        self.name = record["metadata"]["name"]
        self.namespace = record["metadata"]["namespace"]
        self.uid = record["metadata"]["uid"]
        self.folder = os.path.join(kubelet.folder, "pods", f"{self.name}-{self.uid[:8]}")
        self.address = kubelet.take_address()
        self.network = f"ty{os.getpid() % 10000}-{self.address.rsplit('.', 1)[1]}"
        self.volumes = {}
        self.containers = []
        self.reported = None
        self.waits_for = ""
        self.is_over = False
        self.deleted = threading.Event()
        # How a pod that is not started again has ended: a phase, and a reason that the node gives.
        self.phase = ""
        self.reason = ""
        self.started = kubelet.now()
        self.grace = 30
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def say(self, text):
        self.kubelet.say(f"{self.name}: {text}")

    def live(self):
        try:
            os.makedirs(self.folder)
            self.make_network()
            self.mount()
            for spec in self.spec.get("initContainers", []):
                self.run_init(spec)
            self.containers = [Container(self, spec, False) for spec in self.spec["containers"]]
            while not self.deleted.is_set() and not self.phase:
                self.turn()
                self.deleted.wait(0.1)
            self.end()
            if self.phase:
                self.report()
                self.deleted.wait()
        except Exception as error:  # The pod is shown with its reason, and the test sees that it never gets ready.
            self.say(f"cannot go on: {error!r}")
            self.waits_for = str(error)
            self.report()
            self.deleted.wait()
        finally:
            self.take_apart()

    def make_network(self):
        outside = f"v{self.network[2:]}"[:15]
        run("ip", "netns", "add", self.network)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", self.network)
        run("ip", "link", "set", outside, "master", "ty-bridge", "up")
        run("ip", "-n", self.network, "link", "set", "lo", "up")
        run("ip", "-n", self.network, "address", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.network, "link", "set", "eth0", "up")
        run("ip", "-n", self.network, "route", "add", "default", "via", f"{NODE_CIDR}.1")

    def mount(self):
        for volume in self.spec.get("volumes", []):
            name = volume["name"]
            path = os.path.join(self.folder, "volumes", name)
            if "persistentVolumeClaim" in volume:
                path = os.path.join(self.kubelet.folder, "claims", volume["persistentVolumeClaim"]["claimName"])
            elif "hostPath" in volume:
                path = os.path.join(self.kubelet.folder, "host", volume["hostPath"]["path"].lstrip("/"))
            os.makedirs(path, exist_ok=True)
            self.volumes[name] = path
            if "secret" in volume:
                self.fill(path, volume["secret"])
            if "projected" in volume:
                self.project(path, volume["projected"])
            if "hostPath" not in volume:
                self.give_to_group(path)
        for path in self.volumes.values():
            for above in (self.kubelet.folder, os.path.dirname(path)):
                os.chmod(above, 0o755)

    def fill(self, path, source):
        """Writes the keys of a Secret, which may have come or gone since."""
        while True:
            secret = self.kubelet.api.find(f"/api/v1/namespaces/{self.namespace}/secrets/{source['secretName']}")
            if secret is not None or source.get("optional"):
                break
            self.waits_for = f"the Secret {source['secretName']} is missing"
            self.report()
            if self.deleted.wait(0.5):
                return
        self.waits_for = ""
        mode = source.get("defaultMode", 0o644)
        data = (secret or {}).get("data") or {}
        if "items" in source:
            data = {item["path"]: data[item["key"]] for item in source["items"]}
        for key, value in data.items():
            file = os.path.join(path, key)
            with open(file, "wb") as out:
                out.write(base64.b64decode(value))
            os.chmod(file, mode)
        os.chmod(path, 0o755)

    def project(self, path, source):
        """Writes tokens for the pod, and keys of ConfigMaps, as a projected volume has them."""
        space = f"/api/v1/namespaces/{self.namespace}"
        texts = {}
        for part in source["sources"]:
            if "serviceAccountToken" in part:
                wanted = part["serviceAccountToken"]
                request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
                    "audiences": [wanted["audience"]] if "audience" in wanted else [],
                    "expirationSeconds": wanted.get("expirationSeconds", 3600),
                    "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}}}
                account = self.spec["serviceAccountName"]
                made = self.kubelet.api.create(f"{space}/serviceaccounts/{account}/token", request)
                texts[wanted["path"]] = made["status"]["token"]
            else:
                wanted = part["configMap"]
                data = self.kubelet.api.get(f"{space}/configmaps/{wanted['name']}")["data"]
                texts.update({item["path"]: data[item["key"]] for item in wanted["items"]})
        for name, text in texts.items():
            file = os.path.join(path, name)
            with open(file, "w", encoding="utf-8") as out:
                out.write(text)
            os.chmod(file, source.get("defaultMode", 0o644))
        os.chmod(path, 0o755)

    def give_to_group(self, path):
        """Gives a volume to the group of fsGroup, as a kubelet does: all of it, unless its folder is right already."""
        context = self.spec.get("securityContext", {})
        if "fsGroup" not in context:
            return
        group = int(context["fsGroup"])
        info = os.stat(path)
        is_right = info.st_gid == group and info.st_mode & 0o2770 == 0o2770
        if context.get("fsGroupChangePolicy", "Always") == "OnRootMismatch" and is_right:
            return
        for folder, _, files in os.walk(path):
            os.chown(folder, -1, group)
            os.chmod(folder, os.stat(folder).st_mode | 0o2770)
            for name in files:
                file = os.path.join(folder, name)
                if not os.path.islink(file):
                    os.chown(file, -1, group)
                    os.chmod(file, os.stat(file).st_mode | (0o440 if file.startswith(self.folder) else 0o660))

    def run_init(self, spec):
        container = Container(self, spec, True)
        container.start()
        if container.process.wait(timeout=60) != 0:
            raise RuntimeError(f"the init container {spec['name']} failed: {open(container.log_path()).read()[-300:]}")

    def turn(self):
        for container in self.containers:
            if container.is_running():
                container.look()
                continue
            now = time.monotonic()
            if container.process is not None and container.exit_code is None:
                container.exit_code = container.process.returncode
                container.is_ready = False
                if self.spec.get("restartPolicy") == "Never":
                    self.say(f"{container.name} ended with {container.exit_code}")
                    self.phase = "Failed" if container.exit_code else "Succeeded"
                    return
                container.restarts += 1
                container.next_start = now + container.backoff
                container.backoff = min(container.backoff * 2, 8)
                self.say(f"{container.name} ended with {container.exit_code}, and is started again")
            if now >= container.next_start:
                for volume in self.spec.get("volumes", []):
                    if "secret" in volume:
                        self.fill(self.volumes[volume["name"]], volume["secret"])
                    if "projected" in volume:
                        self.project(self.volumes[volume["name"]], volume["projected"])
                    if "secret" in volume or "projected" in volume:
                        self.give_to_group(self.volumes[volume["name"]])
                try:
                    container.start()
                    self.waits_for = ""
                except RuntimeError as error:
                    self.waits_for = str(error)
                    container.next_start = now + 1
        self.report()

    def is_ready(self):
        return bool(self.containers) and all(c.is_ready and c.is_running() for c in self.containers)

    def report(self):
        conditions = [{"type": kind, "status": "True" if is_so else "False"} for kind, is_so in
                      (("Initialized", True), ("Ready", self.is_ready()), ("ContainersReady", self.is_ready()),
                       ("PodScheduled", True))]
        state = {"waiting": {"reason": "CreateContainerConfigError", "message": self.waits_for}} if self.waits_for else {
            "running": {"startedAt": self.kubelet.started}}
        if self.phase:
            state = {"terminated": {"exitCode": self.containers[0].exit_code or 0, "finishedAt": self.kubelet.now()}}
        statuses = [{"name": c.name, "image": c.spec["image"], "imageID": "", "ready": c.is_ready, "restartCount": c.restarts,
                     "state": state} for c in self.containers]
        phase = self.phase or ("Running" if any(c.is_running() for c in self.containers) else "Pending")
        status = {"phase": phase, "reason": self.reason, "startTime": self.started,
                  "podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": f"{NODE_CIDR}.1",
                  "conditions": conditions, "containerStatuses": statuses}
        if status == self.reported:
            return
        try:
            self.kubelet.api.patch(f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/status", {"status": status},
                                   "application/strategic-merge-patch+json")
            self.reported = status
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def end(self):
        """Ends the containers as a kubelet does: preStop, SIGTERM, and SIGKILL when the grace period is over."""
        deadline = time.monotonic() + self.grace
        for container in self.containers:
            hook = container.spec.get("lifecycle", {}).get("preStop", {}).get("exec")
            if hook and container.is_running():
                container.execute(hook["command"], self.grace)
            container.signal(signal.SIGTERM)
        for container in [each for each in self.containers if each.process is not None]:
            while container.is_running() and time.monotonic() < deadline:
                time.sleep(0.05)
            if container.is_running():
                self.say(f"{container.name} is killed at the end of its grace period of {self.grace} s")
                container.signal(signal.SIGKILL)
                container.process.wait(timeout=10)
            else:
                self.say(f"{container.name} ended within its grace period, with {container.process.returncode}")

    def take_apart(self):
        for container in self.containers:
            if container.is_running():
                container.signal(signal.SIGKILL)
                container.process.wait(timeout=10)
        subprocess.run(["ip", "netns", "delete", self.network], check=False, capture_output=True)
        self.is_over = True

    def forget(self):
        """Tells the API server that nothing of the pod is left."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        try:
            self.kubelet.api.delete(path, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})
        except ApiError as error:
            if error.code not in (404, 409):
                raise


class Kubelet:
    """One node, with its pods and its claims on volumes."""

    def __init__(self, api, folder, binaries, images, node="node-1.example", labels=None, gpus=0,
                 api_port=443):
        self.api = api
        self.api_port = api_port
        self.folder = folder
        self.binaries = binaries
        self.images = images
        self.node = node
        self.started = self.now()
        self.pods = {}
        self.addresses = 1
        self.hosts_file = os.path.join(folder, "hosts")
        self.stopped = threading.Event()
        self.lines = []
        os.makedirs(folder, exist_ok=True)
        self.write_files()
        run("ip", "link", "add", "ty-bridge", "type", "bridge")
        run("ip", "address", "add", f"{NODE_CIDR}.1/24", "dev", "ty-bridge")
        run("ip", "link", "set", "ty-bridge", "up")
        self.register(labels or {}, gpus)
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def now(self):
        return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def say(self, text):
        line = f"{time.strftime('%H:%M:%S')} {text}"
        self.lines.append(line)
        print(f"   kubelet {line}", flush=True)

    def write_files(self):
        user = "trainyard:x:10001:10001::/var/lib/trainyard:/usr/sbin/nologin"
        files = {"passwd": f"root:x:0:0::/root:/bin/sh\n{user}\n", "group": "root:x:0:\ntrainyard:x:10001:\n",
                 "nsswitch.conf": "hosts: files\n", "hosts": "127.0.0.1 localhost\n"}
        for name, text in files.items():
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as out:
                out.write(text)

    def take_address(self):
        self.addresses += 1
        return f"{NODE_CIDR}.{self.addresses}"

    def register(self, labels, gpus):
        capacity = {"cpu": "16", "memory": "64Gi", "pods": "100", "ephemeral-storage": "100Gi"}
        if gpus:
            capacity["nvidia.com/gpu"] = str(gpus)
        self.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": self.node, "labels": {"kubernetes.io/hostname": self.node, **labels}}})
        self.api.patch(f"/api/v1/nodes/{self.node}/status", {"status": {
            "capacity": capacity, "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": f"{NODE_CIDR}.1"}]}})
        self.renew()

    def renew(self):
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                 "metadata": {"name": self.node, "namespace": "kube-node-lease"},
                 "spec": {"holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": now}}
        try:
            self.api.patch(f"{path}/{self.node}", {"spec": lease["spec"]})
        except ApiError:
            self.api.create(path, lease)
        self.api.patch(f"/api/v1/nodes/{self.node}/status", {"status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now[:19] + "Z",
            "lastTransitionTime": self.started}]}}, "application/strategic-merge-patch+json")

    def loop(self):
        renewal = 0.0
        while not self.stopped.is_set():
            try:
                if time.monotonic() > renewal:
                    self.renew()
                    renewal = time.monotonic() + 8
                self.bind_claims()
                self.take_pods()
                self.write_hosts()
            except (ApiError, OSError, socket.timeout, http.client.HTTPException, ValueError) as error:
                self.say(f"the API server does not answer as it should: {error}")
            self.stopped.wait(0.2)

    def bind_claims(self):
        """Makes a volume for each claim that waits for one, as a provisioner does."""
        for claim in self.api.items("/api/v1/persistentvolumeclaims"):
            name = claim["metadata"]["name"]
            volume = f"volume-of-{name}"
            if claim.get("status", {}).get("phase") == "Bound" or self.api.find(f"/api/v1/persistentvolumes/{volume}"):
                continue
            self.api.create("/api/v1/persistentvolumes", {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {"capacity": claim["spec"]["resources"]["requests"], "accessModes": claim["spec"]["accessModes"],
                         "hostPath": {"path": "/none"},
                         "claimRef": {"namespace": claim["metadata"]["namespace"], "name": name}}})

    def take_pods(self):
        seen = set()
        for record in self.api.items(f"/api/v1/pods?fieldSelector=spec.nodeName={self.node}"):
            uid = record["metadata"]["uid"]
            seen.add(uid)
            if uid not in self.pods and "deletionTimestamp" not in record["metadata"]:
                self.say(f"{record['metadata']['name']} is placed here")
                self.pods[uid] = Pod(self, record)
            pod = self.pods.get(uid)
            if "deletionTimestamp" in record["metadata"]:
                if pod is not None and not pod.deleted.is_set():
                    pod.grace = record["metadata"].get("deletionGracePeriodSeconds", 30)
                    self.say(f"{pod.name} is to end within {pod.grace} s")
                    pod.deleted.set()
                if pod is not None and pod.is_over:
                    pod.forget()
                    del self.pods[uid]
        for uid in [uid for uid in self.pods if uid not in seen]:
            self.pods[uid].deleted.set()
            if self.pods[uid].is_over:
                del self.pods[uid]

    def write_hosts(self):
        """Gives the name of each Service the address of a ready pod that its selector finds."""
        lines = ["127.0.0.1 localhost"]
        for service in self.api.items("/api/v1/services"):
            selector = service["spec"].get("selector")
            if not selector:
                continue
            for pod in self.pods.values():
                labels = pod.record["metadata"].get("labels", {})
                is_meant = pod.namespace == service["metadata"]["namespace"] and all(
                    labels.get(key) == value for key, value in selector.items())
                if is_meant and pod.is_ready() and not pod.deleted.is_set():
                    name, space = service["metadata"]["name"], pod.namespace
                    lines.append(f"{pod.address} {name} {name}.{space} {name}.{space}.svc")
                    break
        text = "\n".join(lines) + "\n"
        if open(self.hosts_file, encoding="utf-8").read() != text:
            # It is written in place, because it is mounted into the pods.
            with open(self.hosts_file, "w", encoding="utf-8") as out:
                out.write(text)

    def pod(self, name):
        for pod in list(self.pods.values()):
            if pod.name == name and not pod.deleted.is_set():
                return pod
        return None

    def stop(self):
        self.stopped.set()
        self.thread.join(timeout=30)
        for pod in list(self.pods.values()):
            pod.grace = 5
            pod.deleted.set()
        for pod in list(self.pods.values()):
            pod.thread.join(timeout=20)
        subprocess.run(["ip", "link", "delete", "ty-bridge"], check=False, capture_output=True)
        shutil.rmtree(os.path.join(self.folder, "pods"), ignore_errors=True)
