#!/usr/bin/env python3
"""Reads deploy/kubernetes without a cluster: what objects name exists, and each pod has as few rights as it can have."""

import os
import re
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError:
    print("SKIPPED: there is no python3-yaml")
    sys.exit(77)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPLOY = os.path.join(ROOT, "deploy/kubernetes")
OVERLAYS = ("single-node", "gpu")
BIN = os.environ.get("TRAINYARD_BIN", "")
# What a manifest may name though it makes it not: invite.sh makes the one, and a site the other.
SECRETS_OF_OTHERS = {"trainyard-invitations", "trainyard-tls"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def folder_objects(folder):
    """Returns the objects of a folder with kustomization.yaml, and of those that it names."""
    found = []
    for name in yaml.safe_load(read(os.path.join(folder, "kustomization.yaml"))).get("resources", []):
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isdir(path):
            found += folder_objects(path)
        else:
            found += [each for each in yaml.safe_load_all(read(path)) if each]
    kustomization = yaml.safe_load(read(os.path.join(folder, "kustomization.yaml")))
    for component in kustomization.get("components", []):
        path = os.path.normpath(os.path.join(folder, component))
        found += folder_objects(path)
        for patch in yaml.safe_load(read(os.path.join(path, "kustomization.yaml"))).get("patches", []):
            for each in found:
                if (each["kind"], each["metadata"]["name"]) == (patch["target"]["kind"], patch["target"]["name"]):
                    add_to(each, yaml.safe_load(patch["patch"]))
    return found


def add_to(record, steps):
    """Does what a JSON patch says, which only adds to lists."""
    for step in steps:
        target = record
        for word in step["path"].split("/")[1:-1]:
            target = target[int(word) if isinstance(target, list) else word]
        assert step["op"] == "add" and step["path"].endswith("/-"), step
        target.append(step["value"])


def workloads(objects):
    return [each for each in objects if each["kind"] in ("StatefulSet", "DaemonSet", "Deployment")]


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def containers(workload):
    pod = pod_of(workload)
    return pod.get("initContainers", []) + pod["containers"]


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())


def may_reach(objects, sender, receiver, port):
    """Returns True if the policies let TCP from a pod to a port of another. Pods are (labels of namespace or None, labels)."""
    policies = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
    of_receiver = [policy for policy in policies if matches(policy["podSelector"], receiver)]
    if not of_receiver:
        return True
    namespace, labels = sender
    for rule in [rule for policy in of_receiver for rule in policy.get("ingress", [])]:
        ports = rule.get("ports")
        if ports and not any(each.get("port", port) == port for each in ports):
            continue
        for peer in rule.get("from", [{}]):
            if "namespaceSelector" in peer:
                is_meant = namespace is not None and matches(peer["namespaceSelector"], namespace)
            else:
                is_meant = namespace is None
            if is_meant and matches(peer.get("podSelector", {}), labels):
                return True
    return False


class Manifests(unittest.TestCase):
    """Looks at each overlay."""

    def each(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay=overlay):
                yield folder_objects(os.path.join(DEPLOY, "overlays", overlay))

    def test_every_file_is_used_and_no_object_is_there_twice(self):
        for objects in self.each():
            names = [(each["kind"], each["metadata"]["name"]) for each in objects]
            self.assertEqual(len(names), len(set(names)))
        for folder, _, files in os.walk(DEPLOY):
            if "kustomization.yaml" not in files:
                continue
            named = yaml.safe_load(read(os.path.join(folder, "kustomization.yaml"))).get("resources", [])
            for file in files:
                if file.endswith(".yaml") and file != "kustomization.yaml":
                    self.assertIn(file, named, folder)

    def test_selectors_match_labels(self):
        for objects in self.each():
            labels = [each["spec"]["template"]["metadata"]["labels"] for each in workloads(objects)]
            for workload in workloads(objects):
                self.assertTrue(matches(workload["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"]))
            for each in objects:
                if each["kind"] == "Service":
                    selector = {"matchLabels": each["spec"]["selector"]}
                elif each["kind"] == "PodDisruptionBudget":
                    selector = each["spec"]["selector"]
                elif each["kind"] == "NetworkPolicy":
                    selector = each["spec"]["podSelector"]
                else:
                    continue
                found = [one for one in labels if matches(selector, one)]
                self.assertTrue(found, f"{each['kind']} {each['metadata']['name']} selects no pod")

    def test_services_lead_to_ports_that_containers_have(self):
        for objects in self.each():
            names = {port["name"] for workload in workloads(objects) for container in containers(workload)
                     for port in container.get("ports", [])}
            for each in objects:
                for port in each["spec"].get("ports", []) if each["kind"] == "Service" else []:
                    self.assertIn(port["targetPort"], names)
            for workload in workloads(objects):
                if workload["kind"] == "StatefulSet":
                    services = {each["metadata"]["name"] for each in objects if each["kind"] == "Service"}
                    self.assertIn(workload["spec"]["serviceName"], services)

    def test_references_lead_somewhere(self):
        for objects in self.each():
            settings = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
            accounts = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
            invite = read(os.path.join(DEPLOY, "invite.sh"))
            for workload in workloads(objects):
                self.assertIn(pod_of(workload)["serviceAccountName"], accounts)
                volumes = {each["name"] for each in pod_of(workload)["volumes"]}
                volumes |= {each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])}
                for volume in pod_of(workload)["volumes"]:
                    if "secret" in volume:
                        self.assertIn(volume["secret"]["secretName"], SECRETS_OF_OTHERS)
                for container in containers(workload):
                    self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
                    known = set()
                    for source in container.get("envFrom", []):
                        known |= set(settings[source["configMapRef"]["name"]])
                    for entry in container.get("env", []):
                        known.add(entry["name"])
                        key = entry.get("valueFrom", {}).get("secretKeyRef")
                        if key:
                            self.assertIn(key["name"], SECRETS_OF_OTHERS)
                            self.assertIn(f'"{key["key"]}"', invite, "invite.sh makes no such key")
                    used = set(re.findall(r"\$\(([A-Z_]+)\)", " ".join(container.get("args", []))))
                    self.assertLessEqual(used, known, container["name"])

    def test_the_invitations_are_where_the_worker_looks(self):
        for objects in self.each():
            worker = next(each for each in workloads(objects) if each["metadata"]["name"] == "trainyard-worker")
            container = pod_of(worker)["containers"][0]
            file = next(word for word in container["args"] if word.startswith("--join_token_file="))
            if worker["kind"] == "DaemonSet":
                volume = next(each for each in pod_of(worker)["volumes"] if each["name"] == "token")
                source = volume["projected"]["sources"][0]["serviceAccountToken"]
                self.assertEqual(source["audience"], "trainyard-worker")
                mount = next(each for each in container["volumeMounts"] if each["name"] == "token")
                self.assertEqual(file.split("=")[1], f"{mount['mountPath']}/{source['path']}")
                continue
            mount = next(each for each in container["volumeMounts"] if each["name"] == "invitations")
            name = next(word for word in container["args"] if word.startswith("--name="))
            self.assertEqual(file.split("=")[1], f"{mount['mountPath']}/{name.split('=')[1]}")

    def test_each_container_has_the_rights_of_the_restricted_profile(self):
        for objects in self.each():
            for workload in workloads(objects):
                pod = pod_of(workload)
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                self.assertEqual(pod["securityContext"]["fsGroupChangePolicy"], "OnRootMismatch")
                for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
                    self.assertNotIn(forbidden, pod)
                for container in containers(workload):
                    context = container["securityContext"]
                    self.assertIs(context["allowPrivilegeEscalation"], False)
                    self.assertIs(context["readOnlyRootFilesystem"], True)
                    self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                    self.assertNotIn("privileged", context)
                    if container["name"] == "own-state":
                        # It gives a folder of the node to the worker, and nothing else.
                        self.assertEqual(context["capabilities"]["add"], ["CHOWN", "FOWNER"])
                        continue
                    self.assertNotIn("runAsUser", context)
                    self.assertNotIn("add", context["capabilities"])

    def test_pods_cannot_act_in_the_cluster(self):
        for objects in self.each():
            rules = [rule for each in objects if each["kind"].endswith("Role") for rule in each["rules"]]
            bound = {subject["name"] for each in objects if each["kind"].endswith("RoleBinding") for subject in each["subjects"]}
            # With the component tokens, the server may have tokens verified, and read pods of its namespace. Nobody else may
            # do anything.
            if rules:
                self.assertEqual(bound, {"trainyard-server"})
                self.assertEqual([(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in rules],
                                 [(["authentication.k8s.io"], ["tokenreviews"], ["create"]), ([""], ["pods"], ["get"])])
                self.assertEqual([each["kind"] for each in objects if each["kind"].endswith("Role")], ["ClusterRole", "Role"])
            for each in objects:
                if each["kind"] == "ServiceAccount":
                    self.assertIs(each["automountServiceAccountToken"], False)
            for workload in workloads(objects):
                self.assertIs(pod_of(workload)["automountServiceAccountToken"], False)
                self.assertIs(pod_of(workload)["enableServiceLinks"], False)

    def test_the_server_may_ask_for_pilots_and_read_no_secret(self):
        objects = folder_objects(os.path.join(DEPLOY, "components/provider"))
        role, binding = [each for each in objects if each["kind"] != "NetworkPolicy"]
        self.assertEqual((role["kind"], binding["kind"]), ("Role", "RoleBinding"))
        self.assertEqual([(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]],
                         [([""], ["pods"], ["create", "delete", "get", "list"]), ([""], ["secrets"], ["create", "delete"]),
                          (["batch"], ["jobs"], ["create", "delete", "get", "list"])])
        self.assertEqual(binding["roleRef"]["name"], role["metadata"]["name"])
        self.assertEqual([(each["kind"], each["name"], each["namespace"]) for each in binding["subjects"]],
                         [("ServiceAccount", "trainyard-server", "trainyard")])

    def test_pilots_reach_what_workers_reach_and_no_budget_counts_them(self):
        name = {"app.kubernetes.io/name": "trainyard"}
        server, worker, pilot = ({**name, "app.kubernetes.io/component": each} for each in ("server", "worker", "pilot"))
        for objects in self.each():
            alone = [each for each in objects if each["kind"] == "NetworkPolicy"]
            both = alone + folder_objects(os.path.join(DEPLOY, "components/provider"))
            for receiver, port in ((server, 7070), (pilot, 40000), (worker, 40000)):
                self.assertFalse(may_reach(alone, (None, pilot), receiver, port))
                self.assertTrue(may_reach(both, (None, pilot), receiver, port))
            self.assertTrue(may_reach(both, (None, worker), pilot, 40000))
            self.assertFalse(may_reach(both, (None, {}), pilot, 40000))
            self.assertFalse(may_reach(both, (None, pilot), server, 22))
            for budget in [each for each in objects if each["kind"] == "PodDisruptionBudget"]:
                self.assertFalse(matches(budget["spec"]["selector"], pilot))

    def test_pilots_of_a_namespace_of_their_own_and_workers_reach_each_other(self):
        name = {"app.kubernetes.io/name": "trainyard"}
        server, worker, pilot = ({**name, "app.kubernetes.io/component": each} for each in ("server", "worker", "pilot"))
        component = folder_objects(os.path.join(DEPLOY, "components/provider"))
        # The page says with which labels the namespace of pilots is made.
        page = read(os.path.join(ROOT, "docs/providers.md"))
        words = re.search(r"kubectl label namespace pilots (.*?)\n\s*kubectl -n pilots apply (.*?)\n\s*```", page, re.S)
        pilots = dict(word.split("=") for word in words.group(1).split())
        self.assertEqual(pilots["pod-security.kubernetes.io/enforce"], "restricted")
        for file in ("access.yaml", "network.yaml"):
            self.assertIn(f"-f deploy/kubernetes/components/provider/{file}", words.group(2))
        for objects in self.each():
            own = next(each for each in objects if each["kind"] == "Namespace")["metadata"]["labels"]
            both = [each for each in objects if each["kind"] == "NetworkPolicy"] + component
            cases = [(both, (pilots, pilot), server, 7070, True), (both, (pilots, pilot), worker, 40000, True),
                     (component, (own, worker), pilot, 40000, True), (component, (None, pilot), pilot, 40000, True),
                     (component, (None, {}), pilot, 40000, False), (component, (own, {}), pilot, 40000, False),
                     (component, (own, server), pilot, 40000, False), (component, ({}, worker), pilot, 40000, False),
                     (both, ({}, pilot), worker, 40000, False), (both, ({}, pilot), server, 7070, False),
                     (both, (pilots, {}), server, 7070, False), (both, (pilots, {}), worker, 40000, False),
                     (both, (pilots, pilot), server, 22, False)]
            for policies, sender, receiver, port, is_right in cases:
                self.assertEqual(may_reach(policies, sender, receiver, port), is_right, f"{sender} -> {receiver}:{port}")

    def test_only_the_server_has_a_token_that_the_api_server_takes(self):
        for objects in self.each():
            for workload in workloads(objects):
                for volume in pod_of(workload)["volumes"]:
                    for source in volume.get("projected", {}).get("sources", []):
                        token = source.get("serviceAccountToken")
                        if token and "audience" not in token:
                            self.assertEqual(workload["metadata"]["name"], "trainyard-server")

    def test_a_pod_gets_the_time_that_its_worker_needs_to_leave(self):
        for objects in self.each():
            settings = next(each for each in objects if each["kind"] == "ConfigMap")["data"]
            worker = next(each for each in workloads(objects) if each["metadata"]["name"] == "trainyard-worker")
            drain = int(re.fullmatch(r"(\d+)s", settings["DRAIN_ON_STOP"]).group(1))
            self.assertGreaterEqual(pod_of(worker)["terminationGracePeriodSeconds"], drain + 20)

    def test_probes_ask_what_runs_and_no_worker_dies_of_its_server(self):
        for objects in self.each():
            for workload in workloads(objects):
                container = pod_of(workload)["containers"][0]
                self.assertIn("readinessProbe", container)
                for name in ("startupProbe", "readinessProbe", "livenessProbe"):
                    if name in container:
                        self.assertGreaterEqual(container[name].get("timeoutSeconds", 1), 5, name)
                if workload["metadata"]["name"] == "trainyard-worker":
                    self.assertNotIn("livenessProbe", container)

    def test_there_is_one_server_on_one_volume(self):
        for objects in self.each():
            server = next(each for each in workloads(objects) if each["metadata"]["name"] == "trainyard-server")
            self.assertEqual((server["kind"], server["spec"]["replicas"]), ("StatefulSet", 1))
            self.assertEqual(server["spec"]["volumeClaimTemplates"][0]["spec"]["accessModes"], ["ReadWriteOnce"])

    def test_policies_let_through_what_must_pass_and_nothing_else(self):
        name = {"app.kubernetes.io/name": "trainyard"}
        server = {**name, "app.kubernetes.io/component": "server"}
        worker = {**name, "app.kubernetes.io/component": "worker"}
        for objects in self.each():
            cases = [((None, worker), server, 7070, True), ((None, worker), worker, 40000, True),
                     ((None, {"trainyard.dev/client": "true"}), server, 7070, True),
                     (({"trainyard.dev/client": "true"}, {}), server, 7070, True),
                     ((None, {"trainyard.dev/client": "true"}), worker, 40000, False),
                     ((None, {}), server, 7070, False), (({}, {}), server, 7070, False), ((None, server), worker, 40000, False),
                     (({}, worker), worker, 40000, False), ((None, worker), server, 22, False)]
            for sender, receiver, port, is_right in cases:
                self.assertEqual(may_reach(objects, sender, receiver, port), is_right, f"{sender} -> {receiver}:{port}")

    def test_images_are_those_of_the_containerfiles(self):
        for overlay in OVERLAYS:
            renamed = set()
            for folder in ("base", f"overlays/{overlay}"):
                kustomization = yaml.safe_load(read(os.path.join(DEPLOY, folder, "kustomization.yaml")))
                renamed |= {each["name"] for each in kustomization["images"]}
            used = {container["image"] for workload in workloads(folder_objects(os.path.join(DEPLOY, "overlays", overlay)))
                    for container in containers(workload)}
            self.assertEqual(used, renamed)
            for image in used:
                self.assertTrue(os.path.exists(os.path.join(ROOT, "deploy/docker", f"{image[10:]}.Containerfile")), image)

    @unittest.skipUnless(BIN, "TRAINYARD_BIN names no folder of programs")
    def test_the_programs_know_the_flags_that_they_are_given(self):
        flags = {}
        for program in ("trainyard-server", "trainyard-worker"):
            text = subprocess.run([os.path.join(BIN, program), "--help"], capture_output=True, text=True, timeout=20,
                                  check=True).stdout
            flags[program] = set(re.findall(r"^\s+(?:-\w,)?(--[a-z_-]+)", text, re.M))
        component = read(os.path.join(DEPLOY, "components/site-certificate/kustomization.yaml"))
        given = set(re.findall(r"value: (--[a-z_]+)=", component))
        self.assertEqual(given, {"--tls_cert", "--tls_key"})
        self.assertLessEqual(given, flags["trainyard-server"])
        for objects in self.each():
            for workload in workloads(objects):
                for container in pod_of(workload)["containers"]:
                    given = {word.split("=")[0] for word in container["args"]}
                    self.assertLessEqual(given, flags[container["image"]], container["name"])

    def test_a_bucket_backs_up_what_the_server_keeps(self):
        component = yaml.safe_load(read(os.path.join(DEPLOY, "components/bucket-backup/kustomization.yaml")))
        patch, = component["patches"]
        self.assertEqual(patch["target"], {"kind": "StatefulSet", "name": "trainyard-server"})
        steps = yaml.safe_load(patch["patch"])
        self.assertEqual([(each["op"], each["path"].rsplit("/spec/", 1)[1]) for each in steps],
                         [("add", "initContainers"), ("add", "initContainers/-"), ("add", "containers/-")])
        restore, backup = [each["value"] for each in steps[1:]]
        for objects in self.each():
            server = next(each for each in workloads(objects) if each["metadata"]["name"] == patch["target"]["name"])
            container, = pod_of(server)["containers"]
            self.assertEqual(server["spec"]["template"]["metadata"]["annotations"],
                             {"kubectl.kubernetes.io/default-container": container["name"]})
            self.assertNotIn("initContainers", pod_of(server), "the component would drop them")
            self.assertNotEqual(container["name"], backup["name"])
            for each in (restore, backup):
                self.assertEqual(each["image"], container["image"])
                self.assertEqual(each["securityContext"], container["securityContext"])
                self.assertIn(each["args"][0], container["args"])
                for mount in each["volumeMounts"]:
                    self.assertIn(mount, container["volumeMounts"])
                self.assertEqual(each["envFrom"], [{"secretRef": {"name": "trainyard-bucket"}}])
        if BIN:
            for each in (restore, backup):
                text = subprocess.run([os.path.join(BIN, each["image"]), each["args"][1], "--help"], capture_output=True,
                                      text=True, timeout=20, check=True).stdout
                given = {word.split("=")[0] for word in each["args"][2:] if word.startswith("--")}
                self.assertLessEqual(given, set(re.findall(r"^\s+(?:-\w,)?(--[a-z_0-9-]+)", text, re.M)))

    def test_the_script_can_be_read(self):
        subprocess.run(["bash", "-n", os.path.join(DEPLOY, "invite.sh")], check=True, timeout=20)


if __name__ == "__main__":
    unittest.main()
