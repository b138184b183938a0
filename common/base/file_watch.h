// Wakes up who waits for files to change, by inotify, without polling.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard {

struct FileChanges {
  std::set<int> folders;  // numbers that FileWatch::Add gave
  bool any_lost = false;  // the system has dropped some: any folder may have changed
};

// Watches the entries of folders: created, written and closed, renamed into, removed. It tells
// where something changed and not what: the reader looks at the files again. Not thread-safe.
class FileWatch {
 public:
  // RESOURCE_EXHAUSTED where the user's inotify instances are used up; the caller polls then.
  static absl::StatusOr<FileWatch> Create();

  // Adds a folder; fine where it is watched already. It is dropped by itself when it goes. Returns
  // its number, which no other folder gets.
  absl::StatusOr<int> Add(const std::string& directory);

  // For poll(2): readable when something has changed.
  int fd() const { return fd_.get(); }
  // All changes since the last call.
  FileChanges Take();

 private:
  explicit FileWatch(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace trainyard
