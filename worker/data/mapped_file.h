// Maps a file into memory. Its pages are read when they are touched.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::data {

// A read-only mapping. If a file is truncated while it is mapped, reading the lost part ends the
// process with SIGBUS. Data sets must therefore be replaced by renaming, and never be overwritten.
class MappedFile {
 public:
  // Maps a file. The errors are those of OpenFile.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  absl::string_view bytes() const { return bytes_; }
  // Advises the system that reads will be small and far apart, so that pages around them are not
  // worth reading.
  void ExpectRandomReads() const;

 private:
  explicit MappedFile(absl::string_view bytes) : bytes_(bytes) {}

  absl::string_view bytes_;
};

}  // namespace trainyard::data
