// Mounts and fills a tmpfs.
#include "tests/testing/small_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::testing {
namespace {

constexpr size_t kFillersMax = 100'000;

}  // namespace

absl::StatusOr<std::unique_ptr<SmallDisk>> SmallDisk::Mount(const std::string& folder,
                                                            const std::string& options) {
  TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  // Programs refuse a state directory in which others may write.
  const std::string own = absl::StrCat(options, ",mode=0700");
  // The mount must not reach the namespace of others.
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", folder.c_str(), "tmpfs", 0, own.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat(
        ErrnoStatus(errno, "nothing can be mounted here at", folder).message(), "; it needs root"));
  }
  return std::unique_ptr<SmallDisk>(new SmallDisk(folder));
}

SmallDisk::~SmallDisk() {
  umount2(folder_.c_str(), MNT_DETACH);
}

std::string SmallDisk::Filler(size_t number) const {
  return JoinPath(folder_, absl::StrCat("filler-", number));
}

void SmallDisk::FillSpace() {
  const auto file = OpenFile(Filler(fillers_++), O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return;
  const std::string chunk(4096, 'x');
  while (WriteFully(file->get(), chunk, "a filler").ok()) {
  }
}

void SmallDisk::FillInodes() {
  while (fillers_ < kFillersMax && OpenFile(Filler(fillers_++), O_WRONLY | O_CREAT).ok()) {
  }
}

void SmallDisk::Free() {
  for (; fillers_ > 0; --fillers_) unlink(Filler(fillers_ - 1).c_str());
}

}  // namespace trainyard::testing
