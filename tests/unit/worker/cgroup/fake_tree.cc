// Imitates the kernel in plain files, as far as the programs look.
#include "tests/unit/worker/cgroup/fake_tree.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/files.h"

namespace trainyard::testing {
namespace {

// The content of each file in a new group, by the controller to which the file belongs.
const std::map<std::string, std::map<std::string, std::string>>& NewFiles() {
  static const auto* files = new std::map<std::string, std::map<std::string, std::string>>{
      {"",
       {{"cgroup.procs", ""},
        {"cgroup.kill", ""},
        {"cgroup.events", "populated 0\nfrozen 0\n"},
        {"cgroup.subtree_control", ""}}},
      {"memory",
       {{"memory.max", "max\n"},
        {"memory.peak", "0\n"},
        {"memory.swap.max", "max\n"},
        {"memory.oom.group", "0\n"},
        {"memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"}}},
      {"pids", {{"pids.max", "max\n"}}},
      {"cpu", {{"cpu.max", "max 100000\n"}}},
      {"cpuset", {{"cpuset.cpus", "\n"}}},
  };
  return *files;
}

// A group with groups below it is busy, as is one with processes. All that is left are its files.
int RemoveGroup(const std::string& path) {
  const auto names = ListDirectory(path);
  if (!names.ok()) {
    errno = ENOENT;
    return -1;
  }
  for (const std::string& name : *names) {
    struct stat info {};
    const std::string inner = JoinPath(path, name);
    if (stat(inner.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      errno = EBUSY;
      return -1;
    }
  }
  if (cgroup::Group(path).IsPopulated()) {
    errno = EBUSY;
    return -1;
  }
  for (const std::string& name : *names) unlink(JoinPath(path, name).c_str());
  return rmdir(path.c_str());
}

}  // namespace

void FillGroup(const std::string& path, const std::set<std::string>& controllers) {
  const std::string all = absl::StrJoin(controllers, " ");
  TY_CHECK_OK(ReplaceFile(JoinPath(path, "cgroup.controllers"), all + "\n"));
  for (const auto& [controller, files] : NewFiles()) {
    if (!controller.empty() && !controllers.contains(controller)) continue;
    for (const auto& [name, content] : files) {
      TY_CHECK_OK(ReplaceFile(JoinPath(path, name), content));
    }
  }
}

FakeTree::FakeTree(const std::string& root, std::set<std::string> controllers)
    : root_(root), controllers_(std::move(controllers)) {
  calls_.make = [this](const std::string& path) {
    if (mkdir(path.c_str(), 0755) != 0) return -1;
    FillGroup(path, controllers_);
    return 0;
  };
  calls_.remove = RemoveGroup;
  calls_.is_delegated = [this](const std::string& path) { return delegated_.contains(path); };
  TY_CHECK_OK(MakeDirectories(root_));
  FillGroup(root_, controllers_);
}

void FakeTree::Add(const std::string& path, bool is_delegated) {
  const std::string folder = JoinPath(root_, path);
  TY_CHECK_OK(MakeDirectories(folder));
  FillGroup(folder, controllers_);
  if (is_delegated) delegated_.insert(folder);
}

}  // namespace trainyard::testing
