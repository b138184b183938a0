// Maps memory that processes of one host share: an anonymous file (memfd). It disappears when the
// last of them has ended, however they end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/files.h"

namespace trainyard {

class SharedMemory {
 public:
  // Creates memory that is filled with zeros.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(int64_t bytes);
  // Maps memory of another process, or of this one, by its address. Returns FAILED_PRECONDITION if
  // it has another size.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Attach(const std::string& address,
                                                              int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(base_); }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

  // Asks for large pages. This is for memory of which all parts are used. Most systems have large
  // pages switched off for files.
  void AskForLargePages();

  // Returns the address by which other processes find the descriptor `fd` of process `pid`, as long
  // as it is open there. They must belong to the same user and process namespace, and be allowed to
  // trace each other.
  static std::string AddressOf(int64_t pid, int fd);

 private:
  SharedMemory(UniqueFd fd, void* base, int64_t bytes)
      : fd_(std::move(fd)), base_(base), bytes_(bytes) {}
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Map(UniqueFd fd, int64_t bytes);

  const UniqueFd fd_;
  void* const base_;
  const int64_t bytes_;
};

}  // namespace trainyard
