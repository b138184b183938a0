// If the test runs as root, sshd runs in a mount namespace of its own, in which `nobody` has a
// shell and /run is empty, so the machine does not change.
#include "tests/integration/sshd.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

constexpr char kSshd[] = "/usr/sbin/sshd";
constexpr char kSsh[] = "/usr/bin/ssh";

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return name;
}

uint16_t FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = Loopback(0);
  socklen_t length = sizeof(name);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), length), 0);
  EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &length), 0);
  return ntohs(name.sin_port);
}

bool Listens(uint16_t port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in name = Loopback(port);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
}

absl::StatusOr<ProcessResult> Run(const std::vector<std::string>& args, const TempDir& dir) {
  Process::Options options;
  options.args = args;
  return RunProcess(std::move(options), dir.path(), kPatience);
}

// Returns the command that runs sshd. It ends with the test, even if that is killed.
std::vector<std::string> Command(bool is_root, const TempDir& dir) {
  std::vector<std::string> args = {"/usr/bin/setpriv", "--pdeathsig", "KILL"};
  const std::string config = dir.File("sshd_config");
  if (is_root) {
    args.insert(args.end(), {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                             "mount --bind \"$1\" /etc/passwd && mount -t tmpfs tmpfs /run && "
                             "mkdir -m 755 /run/sshd && exec \"$2\" -D -e -f \"$3\"",
                             "sh", dir.File("passwd"), kSshd, config});
  } else {
    args.insert(args.end(), {kSshd, "-D", "-e", "-f", config});
  }
  return args;
}

}  // namespace

Sshd::Sshd() : is_root_(geteuid() == 0) {
  const passwd* entry = getpwuid(geteuid());
  account_ = entry == nullptr ? "" : entry->pw_name;
}

absl::StatusOr<std::unique_ptr<Sshd>> Sshd::Make() {
  if (!FileExists(kSshd) || !FileExists(kSsh)) {
    return absl::UnavailableError(
        absl::StrCat("there is no ", kSshd, "; scripts/install_deps.sh installs openssh-server"));
  }
  std::unique_ptr<Sshd> sshd(new Sshd());
  if (sshd->account_.empty()) return absl::UnavailableError("this user has no name");
  if (sshd->is_root_) {
    TY_ASSIGN_OR_RETURN(const ProcessResult result, Run({"/usr/bin/unshare", "--mount", "/bin/sh",
                                                         "-c", "mount -t tmpfs tmpfs /run"},
                                                        sshd->dir_));
    if (result.exit_code != 0) {
      return absl::UnavailableError(absl::StrCat("no mount namespaces here: ", result.err));
    }
  }
  TY_RETURN_IF_ERROR(sshd->MakeKeys());
  sshd->Configure("");
  return sshd;
}

Sshd::~Sshd() {
  if (process_ != nullptr) Kill();
}

absl::Status Sshd::MakeKeys() {
  // Other accounts read the keys that they accept, and reach the server's socket.
  if (chmod(dir_.path().c_str(), 0711) != 0) return absl::InternalError("cannot open the folder");
  for (const char* name : {"host_key", "id"}) {
    TY_ASSIGN_OR_RETURN(
        const ProcessResult made,
        Run({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir_.File(name)}, dir_));
    if (made.exit_code != 0) return absl::InternalError(made.err);
  }
  TY_ASSIGN_OR_RETURN(public_key_, ReadFile(dir_.File("id.pub")));
  for (const std::string& account : {account_, std::string("nobody")}) Restrict(account, "");
  TY_RETURN_IF_ERROR(MakeDirectories(dir_.File("home"), 0777));
  TY_RETURN_IF_ERROR(MakeDirectories(dir_.File("bin")));
  TY_ASSIGN_OR_RETURN(const std::string passwd, ReadFile("/etc/passwd"));
  std::string changed;
  for (const absl::string_view line : absl::StrSplit(passwd, '\n', absl::SkipEmpty())) {
    if (!absl::StartsWith(line, "nobody:")) absl::StrAppend(&changed, line, "\n");
  }
  absl::StrAppend(&changed, "nobody:*:65534:65534:nobody:", dir_.File("home"), ":/bin/sh\n");
  dir_.Write("passwd", changed);
  const std::string ssh = dir_.Write("bin/ssh", absl::StrCat("#!/bin/sh\nexec ", kSsh, " -F ",
                                                             dir_.File("ssh_config"), " \"$@\"\n"));
  return chmod(ssh.c_str(), 0755) == 0 ? absl::OkStatus() : absl::InternalError("cannot run ssh");
}

void Sshd::Restrict(const std::string& account, const std::string& options) {
  dir_.Write(absl::StrCat("keys_", account),
             absl::StrCat(options, options.empty() ? "" : " ", public_key_));
}

void Sshd::Configure(const std::string& lines) {
  dir_.Write("ssh_config",
             absl::StrCat(lines, "\nHost *\n  IdentityFile ", dir_.File("id"),
                          "\n  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n"
                          "  UserKnownHostsFile ",
                          dir_.File("known_hosts"), "\n  GlobalKnownHostsFile none\n"));
}

std::string Sshd::Address(const std::string& account, const std::string& path) const {
  return absl::StrCat("ssh://", account, "@127.0.0.1:", port_, path);
}

std::map<std::string, std::string> Sshd::Environment() const {
  const char* path = std::getenv("PATH");
  return {{"HOME", dir_.File("home")},
          {"PATH", absl::StrCat(dir_.File("bin"), ":", path == nullptr ? "" : path)},
          {"NO_COLOR", "1"},
          {"TRAINYARD_SERVER", ""},
          {"TRAINYARD_CONTEXT", ""}};
}

void Sshd::Start() {
  // A port that was free may be taken by somebody else before sshd has it.
  constexpr int kTries = 5;
  const bool is_first = port_ == 0;
  for (int i = 0; i < kTries; ++i) {
    if (is_first) port_ = FreePort();
    // Forwarding is forbidden, because nothing needs it.
    dir_.Write("sshd_config",
               absl::StrCat("Port ", port_, "\nListenAddress 127.0.0.1\nHostKey ",
                            dir_.File("host_key"), "\nAuthorizedKeysFile ", dir_.File("keys_%u"),
                            "\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n"
                            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                            "DisableForwarding yes\nLogLevel VERBOSE\nSetEnv PATH=",
                            BinaryPath(""), ":/usr/bin:/bin\n"));
    Process::Options options;
    options.args = Command(is_root_, dir_);
    options.stderr_path = dir_.File("sshd.log");
    auto process = Process::Start(std::move(options));
    ASSERT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    ASSERT_TRUE(WaitUntil([this] { return !process_->running() || Listens(port_); }, kPatience));
    if (process_->running()) break;
  }
  ASSERT_TRUE(process_->running()) << process_->Err();
  TY_CHECK_OK(ReplaceFile(
      dir_.File("known_hosts"),
      absl::StrCat("[127.0.0.1]:", port_, " ", ReadFile(dir_.File("host_key.pub")).value_or(""))));
}

void Sshd::Kill() {
  // The sessions outlive the daemon, so they are listed before it ends.
  const std::vector<ProcessInfo> sessions = Sessions();
  process_->Signal(SIGKILL);
  ASSERT_TRUE(process_->Wait(kPatience).ok());
  for (const ProcessInfo& session : sessions) kill(static_cast<pid_t>(session.pid), SIGKILL);
  process_.reset();
}

std::vector<ProcessInfo> Sshd::Sessions() const {
  return process_ == nullptr ? std::vector<ProcessInfo>()
                             : DescendantsOf(process_->pid(), ListProcesses());
}

}  // namespace trainyard::testing
