// Maps files. The system reads pages when they are touched, and may drop them again, so files
// larger than the memory can be used for training.
#include "worker/data/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>

#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "worker/data/data_file.h"

namespace trainyard::data {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenDataFile(path));
  TY_ASSIGN_OR_RETURN(const int64_t size, FileSize(path));
  if (size == 0) return MappedFile({});  // mmap refuses empty files
  const auto length = static_cast<size_t>(size);
  void* begin = mmap(nullptr, length, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (begin == MAP_FAILED) return ErrnoStatus(errno, "cannot map", path);
  return MappedFile({static_cast<const char*>(begin), length});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

void MappedFile::ExpectRandomReads() const {
  // This is only advice: if it fails, reading is slower.
  if (!bytes_.empty()) madvise(const_cast<char*>(bytes_.data()), bytes_.size(), MADV_RANDOM);
}

}  // namespace trainyard::data
