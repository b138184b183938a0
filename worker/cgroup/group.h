// Controls groups of processes through the file system of the kernel (cgroup v2). A group is a
// folder; what is written into its files limits and ends all processes in it, also those that have
// left their parents and their sessions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard::cgroup {

inline constexpr char kMount[] = "/sys/fs/cgroup";

// The calls in which the kernel does more than a file system does: it fills a new group with files,
// and removes a group together with them. Tests do the same in a folder of a disk. They return 0,
// or -1 with errno.
struct TreeCalls {
  std::function<int(const std::string& path)> make;
  std::function<int(const std::string& path)> remove;
  // Returns true if whoever manages the groups of the host has left this one to others.
  std::function<bool(const std::string& path)> is_delegated;
};

// Returns the calls of the kernel.
const TreeCalls& RealCalls();

// Names one group, which need not exist. It is thread-safe.
class Group {
 public:
  // Borrows `calls`.
  explicit Group(std::string path, const TreeCalls& calls = RealCalls());

  const std::string& path() const { return path_; }
  Group Child(absl::string_view name) const;
  bool Exists() const;
  bool IsDelegated() const;
  // Returns true if the group has this file, which depends on the kernel and on the controllers.
  bool Has(absl::string_view file) const;
  absl::StatusOr<std::string> Read(absl::string_view file) const;
  absl::Status Write(absl::string_view file, absl::string_view value) const;
  // Lets a user write into this file.
  absl::Status GiveTo(absl::string_view file, uid_t uid, gid_t gid) const;

  // Makes the group. It may exist already.
  absl::Status Make() const;
  // Removes the group and those below it. Returns UNAVAILABLE while a process is in one of them.
  // The group need not exist.
  absl::Status Remove() const;
  // Returns the names of the groups right below.
  std::vector<std::string> Children() const;
  // Gives the groups below it those of these controllers that there are. Returns the ones that they
  // have then.
  std::vector<std::string> Enable(const std::vector<std::string>& controllers) const;

  // Moves a process into the group; 0 means this one.
  absl::Status Take(pid_t process) const;
  // Returns the processes that are right in the group, and not below.
  std::vector<pid_t> Processes() const;
  // Returns true if a process is in the group or below.
  bool IsPopulated() const;
  // Waits until no process is in it, or for this long. Returns true if none is.
  bool WaitUntilEmpty(absl::Duration limit) const;
  // Kills every process in the group and below, all at once where the kernel can (since 5.14).
  absl::Status Kill() const;

 private:
  std::string path_;
  const TreeCalls* calls_;
};

// Returns the group in the unified hierarchy from the content of /proc/<pid>/cgroup:
// "/system.slice/a.service". It is empty if the process is in none.
std::string GroupOf(absl::string_view text);

}  // namespace trainyard::cgroup
