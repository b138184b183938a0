// Changes the credentials of one thread by the system's own calls. Those of the C library change
// all threads.
#include "worker/agent/act_as.h"

#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::agent {
namespace {

using CapabilityData = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

CapabilityData Capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  CapabilityData data{};
  TY_CHECK(syscall(SYS_capget, &header, data.data()) == 0);
  return data;
}

void SetCapabilities(const CapabilityData& data) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  TY_CHECK(syscall(SYS_capset, &header, data.data()) == 0);
}

// These are raised again when the thread acts as itself. What is permitted never changes.
CapabilityData AllPermitted() {
  CapabilityData data = Capabilities();
  for (auto& word : data) word.effective = word.permitted;
  return data;
}

CapabilityData NoneEffective() {
  CapabilityData data = Capabilities();
  for (auto& word : data) word.effective = 0;
  return data;
}

bool HasCapability(uint32_t number) {
  const CapabilityData data = Capabilities();
  return (data[number / 32].permitted & (uint32_t{1} << (number % 32))) != 0;
}

// The groups of this process, which do not change while it runs.
const std::vector<gid_t>& OwnGroups() {
  static const auto* groups = [] {
    auto* own = new std::vector<gid_t>(static_cast<size_t>(getgroups(0, nullptr)));
    TY_CHECK(getgroups(static_cast<int>(own->size()), own->data()) >= 0);
    return own;
  }();
  return *groups;
}

void SetGroups(const std::vector<gid_t>& groups) {
  TY_CHECK(syscall(SYS_setgroups, groups.size(), groups.data()) == 0);
}

// These calls return the former value, also when they fail. A value that is never valid changes
// nothing, so the second call tells what the first has done.
void SetFileIds(uid_t uid, gid_t gid) {
  const auto never = static_cast<uid_t>(-1);
  setfsgid(gid);
  TY_CHECK(static_cast<gid_t>(setfsgid(never)) == gid);
  setfsuid(uid);
  TY_CHECK(static_cast<uid_t>(setfsuid(never)) == uid);
}

}  // namespace

ActAs::ActAs(const FileOwner& owner) : is_self_(owner.is_self) {
  if (is_self_) return;
  // An object within another one would give the rights back too early.
  TY_CHECK(static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == geteuid());
  (void)OwnGroups();
  SetGroups(owner.groups);
  SetFileIds(owner.uid, owner.gid);
  // A thread whose file uid is not root's still has the capabilities that do not concern files,
  // and one of them lets it enter the folders of other users by way of /proc.
  SetCapabilities(NoneEffective());
}

ActAs::~ActAs() {
  if (is_self_) return;
  SetCapabilities(AllPermitted());
  SetFileIds(geteuid(), getegid());
  // A change of the file uid to root's raises capabilities and never lowers them.
  SetGroups(OwnGroups());
}

absl::Status CheckPassage(const std::string& path) {
  for (size_t end = path.find('/', 1); true; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    struct stat info {};
    if (stat(part.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot stat", part);
    const auto mode = static_cast<unsigned>(info.st_mode & 07777U);
    if ((mode & S_IXOTH) == 0) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "owners of jobs cannot reach '%s', because '%s' has mode %04o; expected one that others "
          "may pass (chmod o+x), or choose another folder with --state_dir",
          path, part, mode));
    }
    // In a folder like /tmp, only the owner of an entry can rename it.
    const bool is_writable = (mode & (S_IWGRP | S_IWOTH)) != 0 && (mode & S_ISVTX) == 0;
    if (is_writable || info.st_uid != 0) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "'%s', above the run directories of all users, has mode %04o and belongs to uid %d; "
          "expected a folder of root in which nobody else may write; choose another with "
          "--state_dir",
          part, mode, info.st_uid));
    }
    if (end == std::string::npos) return absl::OkStatus();
  }
}

absl::Status CheckCanActAs() {
  constexpr struct {
    uint32_t number;
    const char* name;
  } kNeeded[] = {{CAP_SETUID, "CAP_SETUID"}, {CAP_SETGID, "CAP_SETGID"},
                 {CAP_CHOWN, "CAP_CHOWN"},   {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
                 {CAP_FOWNER, "CAP_FOWNER"}, {CAP_KILL, "CAP_KILL"}};
  if (geteuid() != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--run_as owner needs a worker that is root; this one is uid ", geteuid()));
  }
  for (const auto& capability : kNeeded) {
    if (HasCapability(capability.number)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "--run_as owner needs the capability ", capability.name, ", which this process lacks"));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::agent
