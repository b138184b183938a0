// A tree of control groups in plain files, which does what the kernel does when groups are made and
// removed. It moves no processes and bounds nothing.
#pragma once

#include <set>
#include <string>

#include "worker/cgroup/group.h"

namespace trainyard::testing {

// Fills the folder of a group as the kernel does, with the files of these controllers.
void FillGroup(const std::string& path, const std::set<std::string>& controllers);

// The calls of such a tree, below a folder of a test, whose root has these controllers. It must
// outlive the groups that use it.
class FakeTree {
 public:
  FakeTree(const std::string& root, std::set<std::string> controllers);

  const cgroup::TreeCalls& calls() const { return calls_; }
  // Makes a group and those above it, and marks it as delegated if told so.
  void Add(const std::string& path, bool is_delegated);

 private:
  const std::string root_;
  const std::set<std::string> controllers_;
  std::set<std::string> delegated_;
  cgroup::TreeCalls calls_;
};

}  // namespace trainyard::testing
