// Takes inputs apart.
#include "tests/fuzz/input.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::fuzz {

absl::string_view Input::Take(size_t size) {
  const absl::string_view taken = bytes_.substr(0, size);
  bytes_.remove_prefix(taken.size());
  return taken;
}

uint8_t Input::Byte() {
  const absl::string_view byte = Take(1);
  return byte.empty() ? 0 : static_cast<uint8_t>(byte.front());
}

int64_t Input::Int64() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 8) value |= uint64_t{Byte()} << shift;
  return static_cast<int64_t>(value);
}

absl::string_view Input::Until(char separator) {
  const size_t size = std::min(bytes_.find(separator), bytes_.size());
  const absl::string_view taken = Take(size);
  Take(1);
  return taken;
}

MemoryFile::MemoryFile() : fd_(memfd_create("input", MFD_CLOEXEC)) {
  TY_CHECK(fd_.valid());
  path_ = absl::StrCat("/proc/self/fd/", fd_.get());
}

void MemoryFile::Set(absl::string_view content) {
  TY_CHECK(ftruncate(fd_.get(), 0) == 0);
  TY_CHECK(lseek(fd_.get(), 0, SEEK_SET) == 0);
  TY_CHECK_OK(WriteFully(fd_.get(), content, path_));
}

void SetFile(const std::string& path, absl::string_view content) {
  const auto fd = OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC);
  TY_CHECK_OK(fd.status());
  TY_CHECK_OK(WriteFully(fd->get(), content, path));
}

}  // namespace trainyard::fuzz
