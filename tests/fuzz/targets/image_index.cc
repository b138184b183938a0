// Indexes a shard of images, with an index file beside it that somebody else may have written.
#include "worker/data/image_index.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/tar_headers.h"
#include "tests/fuzz/target.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::fuzz::image_index {
namespace {

// The first byte says what header the index has, and the second how many blocks of 512 bytes the
// shard has. The rest is the shard, and then the index.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const bool has_right_header = input.Below(2) == 0;
  const size_t shard_bytes = input.Below(64) * 512;
  const std::string shard = WithChecksums(input.Take(shard_bytes));
  const absl::string_view lines = input.Rest();
  static testing::TempDir dir;
  const std::string path = dir.File("0.tar");
  SetFile(path, shard);
  SetFile(path + ".index", has_right_header ? absl::StrCat("trainyard-tar-index-1 ", shard.size(),
                                                           " ", ContentHash(lines), "\n", lines)
                                            : std::string(lines));
  const auto index = data::ReadImageIndex(dir.path(), {});
  if (!index.ok()) return;
  for (const data::ImageEntry& entry : index->entries) {
    TY_CHECK(entry.offset >= 0 && entry.size >= 0 &&
             entry.offset <= static_cast<int64_t>(shard.size()) - entry.size);
    TY_CHECK(entry.label >= 0 && entry.label < static_cast<int32_t>(index->classes.size()));
  }
  (void)index->Digest();
}

const Registration kTarget({.name = "image_index", .run = Run, .is_slow = true});

}  // namespace
}  // namespace trainyard::fuzz::image_index
