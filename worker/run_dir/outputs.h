// Defines outputs.json, by which rank 0 of a program says which of its files are to be kept, and
// finds them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/run_dir/paths.h"

namespace trainyard::run_dir {

// The folder in which the program has started, and the patterns of spec.outputs.
struct OutputsPlan {
  std::string folder;
  std::vector<std::string> patterns;
};

absl::Status WriteOutputsPlan(const RunDir& dir, const OutputsPlan& plan);
// Returns NOT_FOUND if there is none, and DATA_LOSS (CORRUPT_FILE) with what is wrong.
absl::StatusOr<OutputsPlan> ReadOutputsPlan(const RunDir& dir);

// Returns true if the pattern names the path, or a folder above it without a wildcard. `*` stands
// for any part of a name, `?` for any character of one, and `**` for any number of folders. Hidden
// names must be spelled out.
bool MatchesPattern(absl::string_view pattern, absl::string_view path);
// Returns true if the pattern may name something in that folder or below it.
bool MayMatchBelow(absl::string_view pattern, absl::string_view folder);

// The limits of what is kept of an attempt.
struct OutputLimits {
  size_t files = 1000;
  int64_t bytes = int64_t{16} << 30;
  size_t looked_at = 100'000;  // names in the folders that may hold some
};

struct OutputFile {
  std::string name;  // relative to the plan's folder
  int64_t size = 0;
};

struct FoundOutputs {
  std::vector<OutputFile> files;  // sorted by name
  // Says what the patterns name and is not kept, and why; empty if there is nothing.
  std::string left_out;
};

// Looks for the files. Links and special files are left out, and so is what exceeds the limits.
// A file that cannot be read is not there.
FoundOutputs FindOutputs(const OutputsPlan& plan, const OutputLimits& limits);

}  // namespace trainyard::run_dir
