#!/usr/bin/env python3
"""The time of `trainyard --server ssh://host ls` beside that of `ssh host true` and of a local `ls`.

Starts a server and a worker of its own (`trainyard up`) and an sshd on a free port of the loopback interface, with keys,
accounts and configuration of its own, and runs the commands in turns. Root runs sshd in a mount namespace, because it wants
a folder in /run.
usage: bench_ssh.py --bin DIR [--runs 30]
"""
import argparse
import os
import pwd
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

SSHD = "/usr/sbin/sshd"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("sshd does not start")


def start_sshd(folder, bin_folder, port):
    """Starts an sshd that knows one key, and writes an `ssh` that knows this sshd."""
    for name in ("host_key", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
    shutil.copy(f"{folder}/id.pub", f"{folder}/authorized_keys")
    with open(f"{folder}/host_key.pub") as key, open(f"{folder}/known_hosts", "w") as file:
        file.write(f"[127.0.0.1]:{port} {key.read()}")
    with open(f"{folder}/sshd_config", "w") as file:
        file.write(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nAuthorizedKeysFile "
                   f"{folder}/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n"
                   f"SetEnv PATH={bin_folder}:/usr/bin:/bin\n")
    with open(f"{folder}/ssh_config", "w") as file:
        file.write(f"IdentityFile {folder}/id\nIdentitiesOnly yes\nIdentityAgent none\nBatchMode yes\n"
                   f"UserKnownHostsFile {folder}/known_hosts\n")
    with open(f"{folder}/ssh", "w") as file:
        file.write(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
    os.chmod(f"{folder}/ssh", 0o755)
    command = [SSHD, "-D", "-f", f"{folder}/sshd_config"]
    if os.geteuid() == 0:
        command = ["unshare", "--mount", "sh", "-c",
                   'mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_for(port)
    return process


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    if not os.path.exists(SSHD):
        print(f"skipped: there is no {SSHD} (openssh-server)")
        return
    folder_of_programs = os.path.abspath(args.bin)
    cli = os.path.join(folder_of_programs, "trainyard")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        user = pwd.getpwuid(os.geteuid()).pw_name
        path = f"{folder}/state/server/server.sock"
        env = dict(os.environ, HOME=folder, PATH=f"{folder}:{os.environ['PATH']}")
        for name in ("TRAINYARD_SERVER", "TRAINYARD_CONTEXT"):
            env.pop(name, None)
        sshd = start_sshd(folder, folder_of_programs, port)
        control = ["-o", "ControlMaster=auto", "-o", f"ControlPath={folder}/c", "-o", "ControlPersist=60"]
        try:
            subprocess.run([cli, "up", "--detach", "--state_dir", f"{folder}/state"], env=env, check=True, capture_output=True)
            plain = ["ssh", "-p", str(port), "-l", user, "127.0.0.1"]
            remote = [cli, "--server", f"ssh://{user}@127.0.0.1:{port}{path}", "ls"]
            commands = {
                "trainyard --server unix: ls": [cli, "--server", f"unix:{path}", "ls"],
                "ssh host true": [*plain, "true"],
                "ssh host trainyard ls": [*plain, f"trainyard --server unix:{path} ls"],
                "trainyard --server ssh://host ls": remote,
            }
            times = {name: [] for name in commands}
            for _ in range(args.runs):
                for name, command in commands.items():
                    begin = time.monotonic()
                    subprocess.run(command, env=env, check=True, capture_output=True)
                    times[name].append((time.monotonic() - begin) * 1e3)
            # With a connection that ssh keeps open, nothing but the start of programs is left.
            subprocess.run(["ssh", *control, *plain[1:], "true"], env=env, check=True, capture_output=True)
            with open(f"{folder}/ssh_config", "a") as file:
                file.write(f"ControlPath {folder}/c\n")
            shared = {"ssh host true, shared connection": [*plain, "true"],
                      "trainyard --server ssh://host ls, shared connection": remote}
            times.update({name: [] for name in shared})
            for _ in range(args.runs):
                for name, command in shared.items():
                    begin = time.monotonic()
                    subprocess.run(command, env=env, check=True, capture_output=True)
                    times[name].append((time.monotonic() - begin) * 1e3)
            print(f"{'':52} {'p50 ms':>8} {'min ms':>8} {'max ms':>8}")
            for name, values in times.items():
                print(f"{name:52} {statistics.median(values):8.0f} {min(values):8.0f} {max(values):8.0f}")
        finally:
            subprocess.run(["ssh", *control[2:4], "-O", "exit", "127.0.0.1"], env=env, capture_output=True)
            subprocess.run([cli, "down", "--state_dir", f"{folder}/state"], env=env, capture_output=True)
            sshd.terminate()
            sshd.wait()


if __name__ == "__main__":
    main()
