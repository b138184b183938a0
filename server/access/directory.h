// Remembers what was set about users and projects, and decides what a caller may do with a job.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "server/access/caller.h"

namespace trainyard::access {

// A user whose role was set.
struct UserRecord {
  std::string name;
  Role role = Role::kNone;
  std::string actor;  // who set it
  int64_t set_time_us = 0;

  friend bool operator==(const UserRecord&, const UserRecord&) = default;
};

// A project with rules of its own.
struct ProjectRecord {
  std::string name;
  bool is_private = false;
  std::set<std::string> members;

  friend bool operator==(const ProjectRecord&, const ProjectRecord&) = default;
};

// The directory. It is thread-safe.
class Directory {
 public:
  void SetUser(const UserRecord& user);
  void DeleteUser(const std::string& name);
  void SetProject(const ProjectRecord& project);
  void DeleteProject(const std::string& name);

  std::vector<UserRecord> users() const;        // in order of name
  std::vector<ProjectRecord> projects() const;  // in order of name

  // Returns the role that was set for the user.
  std::optional<Role> RoleOf(const std::string& user) const;
  // Returns true if the caller may see a job of `owner` in `project`. Jobs of projects that are not
  // private are seen by everybody. Those of a private one are seen by its members, by their owners
  // and by operators.
  bool MaySee(const Caller& caller, const std::string& owner, const std::string& project) const;
  // Returns true if the caller may submit jobs to `project`: if it is private, its members and
  // operators may.
  bool MaySubmitTo(const Caller& caller, const std::string& project) const;

 private:
  // Returns true if the project is private and the caller neither a member nor an operator.
  bool IsClosedTo(const Caller& caller, const std::string& project) const;

  mutable Mutex mutex_;
  std::map<std::string, UserRecord> users_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ProjectRecord> projects_ ABSL_GUARDED_BY(mutex_);
};

// Returns true if the caller may change a job of `owner`.
bool MayChange(const Caller& caller, absl::string_view owner);

}  // namespace trainyard::access
