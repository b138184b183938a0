// Lists what an archive of a folder has, and what it would have to be made anew for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/code/repository.h"
#include "common/code/archive.h"

namespace trainyard::code {

// The facts that the system tells of a file. If they are as before, so is the content.
struct Stamp {
  uint32_t mode = 0;  // 0 for a file that is not there
  int64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  uint64_t inode = 0;
  uint64_t device = 0;

  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// Looks at a path, without following a link at its end.
Stamp StampOf(const std::string& path);

struct Listing {
  std::vector<Entry> entries;  // in the order of their paths
  std::vector<Stamp> stamps;   // of the entries
  // Other files that decide what the entries are: patterns, and the index of the repository.
  std::vector<std::pair<std::string, Stamp>> rule_files;
  // Sentences about what is left out although no pattern says so.
  std::vector<std::string> left_out;
  int64_t bytes = 0;
  // True if files are there that git does not track.
  bool has_untracked = false;
};

// Lists `folder`. `.git` is never taken. Returns RESOURCE_EXHAUSTED (CODE_TOO_LARGE) with the
// largest files, and how to leave them out.
absl::StatusOr<Listing> ListFolder(const std::string& folder, Repository& repository,
                                   const Limits& limits = {});

}  // namespace trainyard::code
