// Reads and writes the files of control groups. docs/run_directory.md says which groups there are.
#include "worker/cgroup/group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::cgroup {
namespace {

// No file of a group that is read here is longer.
constexpr int64_t kFileBytesMax = int64_t{1} << 20;

// systemd marks what it has delegated; before version 251 only in the attribute that root can read.
bool HasDelegateMark(const std::string& path) {
  for (const char* name : {"user.delegate", "trusted.delegate"}) {
    char value[2] = {};
    if (getxattr(path.c_str(), name, value, sizeof value) == 1 && value[0] == '1') return true;
  }
  return false;
}

}  // namespace

const TreeCalls& RealCalls() {
  static const auto* calls = new TreeCalls{
      [](const std::string& path) { return mkdir(path.c_str(), 0755); },
      [](const std::string& path) { return rmdir(path.c_str()); },
      HasDelegateMark,
  };
  return *calls;
}

Group::Group(std::string path, const TreeCalls& calls) : path_(std::move(path)), calls_(&calls) {}

Group Group::Child(absl::string_view name) const {
  return Group(JoinPath(path_, name), *calls_);
}

bool Group::Exists() const {
  return Has("cgroup.procs");
}

bool Group::IsDelegated() const {
  return Exists() && calls_->is_delegated(path_);
}

bool Group::Has(absl::string_view file) const {
  return FileExists(JoinPath(path_, file));
}

absl::StatusOr<std::string> Group::Read(absl::string_view file) const {
  // The kernel says that these files are empty, so their size is no help.
  TY_ASSIGN_OR_RETURN(const std::string text,
                      ReadFileRange(JoinPath(path_, file), 0, kFileBytesMax));
  return std::string(absl::StripAsciiWhitespace(text));
}

absl::Status Group::Write(absl::string_view file, absl::string_view value) const {
  const std::string path = JoinPath(path_, file);
  // The kernel's files cannot be truncated, and those of tests should be.
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_TRUNC));
  // Each value must arrive in one call.
  const ssize_t written = write(fd.get(), value.data(), value.size());
  if (written < 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot write '", value, "' into"), path);
  }
  return absl::OkStatus();
}

absl::Status Group::GiveTo(absl::string_view file, uid_t uid, gid_t gid) const {
  const std::string path = JoinPath(path_, file);
  if (chown(path.c_str(), uid, gid) != 0) {
    return ErrnoStatus(errno, "cannot change the owner of", path);
  }
  return absl::OkStatus();
}

absl::Status Group::Make() const {
  if (calls_->make(path_) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "cannot make the control group", path_);
  }
  return absl::OkStatus();
}

absl::Status Group::Remove() const {
  for (const std::string& name : Children()) TY_RETURN_IF_ERROR(Child(name).Remove());
  if (calls_->remove(path_) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno == EBUSY) {
    return absl::UnavailableError(absl::StrCat("processes are still in '", path_, "'"));
  }
  return ErrnoStatus(errno, "cannot remove the control group", path_);
}

std::vector<std::string> Group::Children() const {
  std::vector<std::string> children;
  const auto names = ListDirectory(path_);
  if (!names.ok()) return children;
  for (const std::string& name : *names) {
    struct stat info {};
    const std::string path = JoinPath(path_, name);
    if (lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) children.push_back(name);
  }
  return children;
}

std::vector<std::string> Group::Enable(const std::vector<std::string>& controllers) const {
  std::vector<std::string> enabled;
  // One that is missing must not keep the others away, so each is written by itself.
  for (const std::string& name : controllers) {
    if (Write("cgroup.subtree_control", absl::StrCat("+", name)).ok()) enabled.push_back(name);
  }
  return enabled;
}

absl::Status Group::Take(pid_t process) const {
  return Write("cgroup.procs", absl::StrCat(process));
}

std::vector<pid_t> Group::Processes() const {
  std::vector<pid_t> processes;
  const auto text = Read("cgroup.procs");
  if (!text.ok()) return processes;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    pid_t process = 0;
    if (absl::SimpleAtoi(line, &process) && process > 0) processes.push_back(process);
  }
  return processes;
}

bool Group::IsPopulated() const {
  const auto text = Read("cgroup.events");
  if (!text.ok()) return false;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (line == "populated 1") return true;
  }
  return false;
}

bool Group::WaitUntilEmpty(absl::Duration limit) const {
  const auto events = OpenFile(JoinPath(path_, "cgroup.events"), O_RDONLY);
  if (!events.ok()) return true;
  // The kernel reports a change of the file since it was read.
  char byte = 0;
  (void)!read(events->get(), &byte, 1);
  if (!IsPopulated()) return true;
  pollfd fds[] = {{events->get(), POLLPRI, 0}};
  (void)poll(fds, 1, static_cast<int>(absl::ToInt64Milliseconds(limit)));
  return !IsPopulated();
}

absl::Status Group::Kill() const {
  if (Has("cgroup.kill")) return Write("cgroup.kill", "1");
  for (const std::string& name : Children()) TY_RETURN_IF_ERROR(Child(name).Kill());
  for (const pid_t process : Processes()) (void)kill(process, SIGKILL);
  return absl::OkStatus();
}

std::string GroupOf(absl::string_view text) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) return std::string(line);
  }
  return "";
}

}  // namespace trainyard::cgroup
