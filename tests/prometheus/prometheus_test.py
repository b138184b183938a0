"""Tests of /metrics, the rules and the dashboard with a real server, a real worker and a real Prometheus."""

import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

BIN = os.environ["TRAINYARD_BIN"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules.yaml"
DASHBOARD = ROOT / "deploy/grafana/trainyard.json"
# Only a GPU has these. tests/unit/server/metrics/parts_test.cc shows that they are written.
OF_GPUS = {"trainyard_device_power_watts", "trainyard_device_memory_used_bytes", "trainyard_device_temperature_celsius",
           "trainyard_device_uncorrected_ecc_errors", "trainyard_device_utilization_ratio"}
SERIES = re.compile(r"\b(?:trainyard[_:]|process_)[a-z0-9_:]+")


def wait_for(condition, what, seconds=30.0):
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come in time")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Lab:
    """A server with a worker, and a Prometheus that reads the server's metrics over TLS with a token."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ty-prom-"))
        self.log = open(self.folder / "log", "wb")
        self.processes = []
        address = f"unix:{self.folder}/s.sock"
        self.client = [f"{BIN}/trainyard", "--server", address]
        # Nobody answers for the bucket; its series are there all the same.
        self.start(f"{BIN}/trainyard-server", "--state_dir", f"{self.folder}/s", "--listen", address, "--listen",
                   "tls:127.0.0.1:0", "--checkpoint_bucket", "s3://lab/yard", "--s3_endpoint", "http://127.0.0.1:9")
        ready = self.folder / "s/ready"
        wait_for(ready.exists, "the server")
        self.target = ready.read_text().split()[-1].removeprefix("tls://").removeprefix("tls:")
        self.start(f"{BIN}/trainyard-worker", "--server", address, "--state_dir", f"{self.folder}/w", "--cpu_devices", "2")
        self.token = self.cli("tokens", "create", "--scope", "read", "--note", "prometheus").split()[-1]
        # The first job waits until there is a worker. The second one fails.
        wait_for(lambda: json.loads(self.cli("workers", "ls", "-o", "json")), "the worker")
        # An alert tells of backups that have stopped.
        self.cli("admin", "backup", f"{self.folder}/backups", "--state-dir", f"{self.folder}/s")

    def start(self, *command):
        process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=self.folder)
        self.processes.append(process)
        return process

    def cli(self, *args):
        done = subprocess.run([*self.client, *args], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(f"{args}: {done.stderr}")
        return done.stdout

    def submit(self, *command):
        spec = self.folder / f"spec-{time.monotonic_ns()}.yaml"
        spec.write_text(json.dumps({"name": "small", "program": {"command": list(command)}, "project": "vision"}))
        return self.cli("submit", str(spec), "-o", "json")

    def start_prometheus(self):
        (self.folder / "token").write_text(self.token)
        shutil.copy(self.folder / "s/tls/authority.pem", self.folder)
        config = (ROOT / "deploy/prometheus/prometheus.yaml").read_text()
        config = config.replace("/etc/prometheus/trainyard", str(self.folder)).replace("lab.example:7070", self.target)
        config = config.replace("15s", "500ms").replace("- rules.yaml", f"- {RULES}")
        (self.folder / "prometheus.yaml").write_text(config)
        # Prometheus does not say which port it got, so one is chosen for it. Somebody may be faster.
        for _ in range(3):
            port = free_port()
            self.prometheus = f"http://127.0.0.1:{port}"
            process = self.start("prometheus", f"--config.file={self.folder}/prometheus.yaml",
                                 f"--storage.tsdb.path={self.folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}")
            if wait_for(lambda: self.is_ready() or process.poll() is not None, "Prometheus") and process.poll() is None:
                return
        raise AssertionError("Prometheus does not start: " + (self.folder / "log").read_text(errors="replace")[-2000:])

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.prometheus}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, path, **arguments):
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from error

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def scrape(self, token):
        context = ssl.create_default_context(cafile=self.folder / "s/tls/authority.pem")
        context.set_alpn_protocols(["http/1.1"])
        request = urllib.request.Request(f"https://{self.target}/metrics")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.headers, answer.read().decode()

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def setUpModule():
    global lab
    missing = [program for program in ("prometheus", "promtool") if shutil.which(program) is None]
    if missing:
        raise unittest.SkipTest(f"{' and '.join(missing)} of Debian's package prometheus are missing")
    lab = Lab()
    unittest.addModuleCleanup(lab.close)
    lab.submit("sh", "-c", "exit 0")
    lab.submit("sh", "-c", "exit 3")
    lab.start_prometheus()


def promtool(*args, **options):
    done = subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=60, **options)
    return done.returncode, done.stdout + done.stderr


def dashboard_queries():
    """Yields the title of each panel, and of each annotation, with a query of it."""
    dashboard = json.loads(DASHBOARD.read_text())
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"].replace("$instance", ".*")
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$instance", ".*")


def rule_queries():
    rules = lab.ask("rules")["groups"]
    return [(rule["name"], rule["query"]) for group in rules for rule in group["rules"]]


class Text(unittest.TestCase):
    def test_promtool_finds_nothing_wrong_with_the_metrics(self):
        headers, text = lab.scrape(lab.token)
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(promtool("check", "metrics", input=text), (0, ""))

    def test_every_family_has_help_in_a_whole_sentence(self):
        _, text = lab.scrape(lab.token)
        helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
        types = dict(re.findall(r"^# TYPE (\S+) (.*)$", text, re.M))
        self.assertEqual(helps.keys(), types.keys())
        for name, help_text in helps.items():
            self.assertRegex(help_text, r"^(The|It|A) .*\.$", name)

    def test_a_scrape_needs_a_token(self):
        for token in (None, "tyk_wrong"):
            with self.assertRaises(urllib.error.HTTPError) as caught:
                lab.scrape(token)
            with caught.exception as refusal:
                self.assertEqual(refusal.code, 401)

    def test_no_label_names_a_job_or_a_user(self):
        _, text = lab.scrape(lab.token)
        labels = set(re.findall(r'[{,]([a-z_]+)="', text))
        self.assertLessEqual(labels, {"state", "project", "class", "method", "code", "le", "store", "kind", "version",
                                      "worker", "device"})


class Prometheus(unittest.TestCase):
    def test_the_server_is_scraped(self):
        wait_for(lambda: [r for r in lab.query('up{job="trainyard"}') if r["value"][1] == "1"], "a scrape")
        ended = 'sum(trainyard_jobs{state=~"succeeded|failed"})'
        wait_for(lambda: [r for r in lab.query(ended) if r["value"][1] == "2"], "the end of both jobs")
        failed = wait_for(lambda: lab.query("trainyard_attempt_failures_total > 0"), "the failure")
        self.assertEqual([(r["metric"]["class"], r["value"][1]) for r in failed], [("user_error", "1")])
        self.assertEqual([r["value"][1] for r in lab.query('trainyard_workers{state="active"}')], ["1"])
        self.assertEqual([r["value"][1] for r in lab.query("sum(trainyard_devices)")], ["2"])
        calls = lab.query('trainyard_rpcs_total{method="JobService/CreateJob",code="OK"}')
        self.assertEqual([r["value"][1] for r in calls], ["2"])

    def test_queries_of_rules_and_dashboard_name_only_series_that_exist(self):
        # Recorded series are there after the second evaluation.
        wait_for(lambda: lab.query("trainyard:commit_duration_seconds:p99_5m"), "the recorded series")
        known = set(lab.ask("label/__name__/values")) | OF_GPUS
        queries = rule_queries() + list(dashboard_queries())
        self.assertGreater(len(queries), 30)
        for title, query in queries:
            names = set(SERIES.findall(query))
            self.assertTrue(names or "up{" in query, f"{title}: {query}")
            self.assertLessEqual(names, known, title)
            lab.query(query)  # fails with what Prometheus says of it

    def test_the_rules_load_and_their_alerts_are_evaluated(self):
        groups = wait_for(lambda: [g for g in lab.ask("rules")["groups"] if all(
            rule["health"] == "ok" for rule in g["rules"])], "the rules")
        self.assertEqual({group["name"] for group in groups}, {"trainyard_records", "trainyard_alerts"})


class Rules(unittest.TestCase):
    def test_promtool_accepts_the_rules(self):
        code, output = promtool("check", "rules", "--lint-fatal", str(RULES))
        self.assertEqual(code, 0, output)

    def test_each_alert_fires_when_it_should(self):
        code, output = promtool("test", "rules", "rules_test.yaml", cwd=pathlib.Path(__file__).parent)
        self.assertEqual(code, 0, output)
        alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
        tested = re.findall(r"alertname: (\w+)\n\s+exp_alerts", pathlib.Path(__file__).with_name("rules_test.yaml").read_text())
        self.assertEqual(set(tested), alerts)


if __name__ == "__main__":
    unittest.main()
