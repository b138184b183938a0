// Unpacks code archives of users. Whatever they hold, nothing appears outside of the folder.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/code/archive.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/tar_headers.h"
#include "tests/fuzz/target.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::fuzz::code_archive {
namespace {

constexpr code::Limits kSmall{.content_bytes = 1 << 16, .entries = 64};

// If the first byte is even, the checksums are repaired.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const bool repairs = input.Below(2) == 0;
  const absl::string_view rest = input.Rest();
  const std::string archive = repairs ? WithChecksums(rest) : std::string(rest);
  const testing::TempDir dir;
  const std::string folder = dir.File("out");
  TY_CHECK(mkdir(folder.c_str(), 0700) == 0);
  {
    const auto fd = OpenFile(dir.Write("archive", archive), O_RDONLY);
    TY_CHECK(fd.ok());
    (void)code::Unpack(fd->get(), folder, kSmall);
  }
  TY_CHECK(ListDirectory(dir.path())->size() == 2);
}

const Registration kTarget({.name = "code_archive", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::code_archive
