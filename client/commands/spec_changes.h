// Reads the changes of a spec from the command line: --set, and the flags that each stand for a
// field or two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/flags.h"

namespace trainyard::commands {

// The largest number of devices that a flag may ask for.
inline constexpr int kDevicesMax = 4096;

// These flags change a spec. Each verb declares those that it has.
struct SpecFlags {
  std::vector<std::string> set;  // each "PATH=VALUE"
  std::optional<int> devices;
  int64_t batch = 0;    // 0 means what the spec says
  std::string elastic;  // such as "2-8"
  std::optional<int> priority;
  std::string project;
  std::string name;
  std::vector<std::string> notify;  // each a mail address or a URL
  std::string code;                 // a folder
  std::optional<int> cpus;
  std::string memory;  // of a rank, such as "64GiB"
  std::string time_limit;
  std::string idle_limit;
  std::string isolation;
  std::vector<std::string> outputs;  // patterns of files
};

struct Change {
  std::string path;
  // JSON or a bare word; an empty value unsets the field.
  std::string value;
};

// Returns the changes in the order in which they apply. Returns INVALID_ARGUMENT if the value of a
// flag cannot be read.
absl::StatusOr<std::vector<Change>> ChangesOf(const SpecFlags& flags);

}  // namespace trainyard::commands
