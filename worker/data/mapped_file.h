// A file seen as memory: pages are read when they are touched.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::data {

// Read-only. A file that is cut while it is mapped ends the process with SIGBUS where its lost part
// is read: data sets are replaced by renaming, never written over.
class MappedFile {
 public:
  // Errors as OpenFile's.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  absl::string_view bytes() const { return bytes_; }
  // Reads will be small and far apart, so that pages around them are not worth reading.
  void ExpectRandomReads() const;

 private:
  explicit MappedFile(absl::string_view bytes) : bytes_(bytes) {}

  absl::string_view bytes_;
};

}  // namespace trainyard::data
