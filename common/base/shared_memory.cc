// The memory is a memfd, which has no name, so nothing is left behind when all processes die. Other
// processes open it through /proc/<pid>/fd.
#include "common/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard {

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(int64_t bytes) {
  UniqueFd fd(memfd_create("trainyard", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot create", "shared memory");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, "cannot size", "shared memory");
  }
  return Map(std::move(fd), bytes);
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Attach(const std::string& address,
                                                                   int64_t bytes) {
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(address, O_RDWR));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot stat", address);
  if (info.st_size != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", address, "' has ", info.st_size, " bytes; expected ", bytes));
  }
  return Map(std::move(fd), bytes);
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Map(UniqueFd fd, int64_t bytes) {
  void* base =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return ErrnoStatus(errno, "cannot map", "shared memory");
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(fd), base, bytes));
}

SharedMemory::~SharedMemory() {
  munmap(base_, static_cast<size_t>(bytes_));
}

void SharedMemory::AskForLargePages() {
  // A system without large pages continues with small ones.
  madvise(base_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
}

std::string SharedMemory::AddressOf(int64_t pid, int fd) {
  return absl::StrCat("/proc/", pid, "/fd/", fd);
}

}  // namespace trainyard
