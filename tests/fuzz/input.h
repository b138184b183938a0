// Takes an input apart, and puts what a part of the product reads from files into files.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/files.h"

namespace trainyard::fuzz {

// Reads values from the front of an input. At its end all values are 0 and all texts empty, so that
// every input means something.
class Input {
 public:
  explicit Input(absl::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t Byte();
  // Returns a number below `count`, which is at least 1.
  size_t Below(size_t count) { return Byte() % count; }
  // Returns a number of 64 bits, low byte first.
  int64_t Int64();
  // Returns the bytes before the next `separator` and skips it, or all that is left.
  absl::string_view Until(char separator);
  absl::string_view Take(size_t size);
  absl::string_view Rest() { return Take(bytes_.size()); }

 private:
  absl::string_view bytes_;
};

// A file in memory, with a path under which it can be opened.
class MemoryFile {
 public:
  MemoryFile();

  const std::string& path() const { return path_; }
  void Set(absl::string_view content);

 private:
  UniqueFd fd_;
  std::string path_;
};

// Replaces a file without syncing it. Its folder must exist.
void SetFile(const std::string& path, absl::string_view content);

}  // namespace trainyard::fuzz
