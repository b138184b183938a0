// The unit runs `trainyard up` in the foreground, which remembers its flags, starts both daemons
// and ends when one of them does; systemd then starts it again.
#include "client/commands/user_service.h"

#include <unistd.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/daemons/child.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

// It finds the programs of systemd in the PATH.
constexpr char kEnv[] = "/usr/bin/env";
constexpr char kUnit[] = "trainyard.service";
// Stopping waits for the daemons, each of which has ten seconds.
constexpr absl::Duration kTimeout = absl::Seconds(60);

absl::Status Systemctl(std::vector<std::string> words) {
  words.insert(words.begin(), {kEnv, "systemctl", "--user"});
  const auto result = daemons::RunChild(words, "", kTimeout);
  TY_RETURN_IF_ERROR(result.status());
  if (result->exit_code == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("`systemctl --user ", words[3], "` failed: ",
                   result->err.empty() ? absl::StrCat("exit code ", result->exit_code)
                                       : absl::StripAsciiWhitespace(result->err)));
}

// Returns a word as systemd reads it in a command line.
std::string Quoted(absl::string_view word) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(word, {{"\\", "\\\\"}, {"\"", "\\\""}, {"%", "%%"}, {"$", "$$"}}),
      "\"");
}

std::string ExecStart(const std::string& binary_dir, const Machine& machine) {
  return absl::StrCat("ExecStart=", Quoted(JoinPath(binary_dir, "trainyard")),
                      " up --stay --state-dir ", Quoted(machine.state_dir), "\n");
}

}  // namespace

UserService::UserService(const Context& context)
    : binary_dir_(context.surroundings.binary_dir),
      path_(JoinPath(ConfigHome(context.surroundings), absl::StrCat("systemd/user/", kUnit))) {}

std::string UserService::UnitText(const Machine& machine) const {
  return absl::StrCat(
      "# Written by `trainyard up --service`; `trainyard down` removes it.\n"
      "[Unit]\n"
      "Description=Trainyard on this machine\n"
      "\n"
      "[Service]\n",
      ExecStart(binary_dir_, machine),
      "Restart=on-failure\n"
      "RestartSec=1s\n"
      "# It ends with the code of an interrupt if it is told to end.\n"
      "SuccessExitStatus=130\n"
      "# Ranks and their supervisors outlive the daemons, which `up` stops by itself.\n"
      "KillMode=process\n"
      "OOMPolicy=continue\n"
      "\n"
      "[Install]\n"
      "WantedBy=default.target\n");
}

bool UserService::IsOf(const Machine& machine) const {
  const auto text = ReadFileRange(path_, 0, int64_t{1} << 16);
  return text.ok() &&
         absl::StrContains(*text, absl::StrCat(" --state-dir ", Quoted(machine.state_dir), "\n"));
}

absl::Status UserService::Check(const Machine& machine) const {
  const absl::Status answers = Systemctl({"show-environment"});
  if (!answers.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no systemd runs for you here, and only that starts and ends a service: ",
        answers.message(),
        "\n  `trainyard up --detach` starts both without one; a login by ssh or at the machine "
        "starts a systemd of yours, and `su` or `sudo` do not"));
  }
  if (FileExists(path_) && !IsOf(machine)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_,
                     " is the service of another state directory; `trainyard down` with "
                     "the --state-dir that it names removes it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UserService::Install(const Machine& machine) const {
  TY_RETURN_IF_ERROR(MakeDirectories(path_.substr(0, path_.rfind('/')), 0755));
  TY_RETURN_IF_ERROR(WriteFileAtomically(path_, UnitText(machine), 0644));
  TY_RETURN_IF_ERROR(Systemctl({"daemon-reload"}));
  TY_RETURN_IF_ERROR(Systemctl({"enable", kUnit}));
  TY_RETURN_IF_ERROR(Systemctl({"restart", kUnit}));
  const auto lingers = daemons::RunChild({kEnv, "loginctl", "enable-linger"}, "", kTimeout);
  if (lingers.ok() && lingers->exit_code == 0) return "";
  return "it starts when you log in, and ends when you log out; `sudo loginctl enable-linger "
         "$USER` lets it run from the start of the machine";
}

absl::Status UserService::Remove() const {
  TY_RETURN_IF_ERROR(Systemctl({"disable", "--now", kUnit}));
  unlink(path_.c_str());
  return Systemctl({"daemon-reload"});
}

}  // namespace trainyard::commands
