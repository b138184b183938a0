// Mounts, fills and unmounts the file system.
#include "tests/testing/small_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard::testing {

std::unique_ptr<SmallDisk> SmallDisk::Mount(int64_t bytes, std::string& why) {
  auto dir = std::make_unique<TempDir>();
  const std::string options = absl::StrCat("mode=0700,size=", bytes);
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", dir->path().c_str(), "tmpfs", 0, options.c_str()) != 0) {
    why = absl::StrCat("cannot mount a small file system here: ", strerror(errno));
    return nullptr;
  }
  return std::unique_ptr<SmallDisk>(new SmallDisk(std::move(dir)));
}

SmallDisk::~SmallDisk() {
  umount2(path_.c_str(), MNT_DETACH);
}

void SmallDisk::Fill() {
  const std::string filler = File("filler");
  const auto fd = OpenFile(filler, O_WRONLY | O_CREAT | O_APPEND);
  ASSERT_TRUE(fd.ok()) << fd.status();
  const std::string block(4096, 'x');
  while (WriteFully(fd->get(), block, filler).ok()) {
  }
}

void SmallDisk::Free() {
  ASSERT_EQ(unlink(File("filler").c_str()), 0);
}

}  // namespace trainyard::testing
