// Looks users and projects up under one lock, which is held for the time of a look.
#include "server/access/directory.h"

namespace trainyard::access {
namespace {

template <typename Records>
auto ValuesOf(const Records& records) {
  std::vector<typename Records::mapped_type> values;
  values.reserve(records.size());
  for (const auto& [name, record] : records) values.push_back(record);
  return values;
}

}  // namespace

void Directory::SetUser(const UserRecord& user) {
  const MutexLock lock(&mutex_);
  users_[user.name] = user;
}

void Directory::DeleteUser(const std::string& name) {
  const MutexLock lock(&mutex_);
  users_.erase(name);
}

void Directory::SetProject(const ProjectRecord& project) {
  const MutexLock lock(&mutex_);
  projects_[project.name] = project;
}

void Directory::DeleteProject(const std::string& name) {
  const MutexLock lock(&mutex_);
  projects_.erase(name);
}

std::vector<UserRecord> Directory::users() const {
  const MutexLock lock(&mutex_);
  return ValuesOf(users_);
}

std::vector<ProjectRecord> Directory::projects() const {
  const MutexLock lock(&mutex_);
  return ValuesOf(projects_);
}

std::optional<Role> Directory::RoleOf(const std::string& user) const {
  const MutexLock lock(&mutex_);
  const auto found = users_.find(user);
  return found == users_.end() ? std::nullopt : std::optional(found->second.role);
}

bool Directory::IsClosedTo(const Caller& caller, const std::string& project) const {
  if (caller.role >= Role::kOperator) return false;
  const MutexLock lock(&mutex_);
  const auto found = projects_.find(project);
  return found != projects_.end() && found->second.is_private &&
         !found->second.members.contains(caller.user);
}

bool Directory::MaySee(const Caller& caller, const std::string& owner,
                       const std::string& project) const {
  return caller.user == owner || !IsClosedTo(caller, project);
}

bool Directory::MaySubmitTo(const Caller& caller, const std::string& project) const {
  return !IsClosedTo(caller, project);
}

bool MayChange(const Caller& caller, absl::string_view owner) {
  return caller.user == owner || caller.role >= Role::kOperator;
}

}  // namespace trainyard::access
