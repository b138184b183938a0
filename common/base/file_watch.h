// Wakes up a caller that waits for files to change, by inotify, without polling.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard {

struct FileChanges {
  std::set<int> folders;  // the numbers that FileWatch::Add returned
  bool any_lost = false;  // true if the system has dropped events: any folder may have changed
};

// Watches the entries of folders: entries that are created, written and closed, renamed into, or
// removed. It tells in which folder something changed, but not what: the reader looks at the files
// again. The class is not thread-safe.
class FileWatch {
 public:
  // Returns RESOURCE_EXHAUSTED if the user's inotify instances are used up; the caller then polls.
  static absl::StatusOr<FileWatch> Create();

  // Adds a folder, which may be watched already. A folder that is removed is dropped automatically.
  // Returns its number, which no other folder gets.
  absl::StatusOr<int> Add(const std::string& directory);

  // Returns a descriptor for poll(2) that is readable when something has changed.
  int fd() const { return fd_.get(); }
  // Returns all changes since the last call.
  FileChanges Take();

 private:
  explicit FileWatch(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard
