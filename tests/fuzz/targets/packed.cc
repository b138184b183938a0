// Unpacks gzip and Zstandard. A few bytes may stand for gigabytes.
#include "common/base/check.h"
#include "tests/fuzz/target.h"
#include "worker/data/archive_limit.h"
#include "worker/data/gzip.h"
#include "worker/data/zstd_codec.h"

namespace trainyard::fuzz::packed {
namespace {

void Run(absl::string_view input) {
  const int64_t limit = data::ArchiveLimit(static_cast<int64_t>(input.size()));
  for (const auto decode : {data::DecodeGzip, data::DecodeZstd}) {
    const auto content = decode(input, limit);
    if (content.ok()) TY_CHECK(static_cast<int64_t>(content->size()) <= limit);
  }
}

// Zstandard has a window of 2 MiB for streams whose size is unknown.
const Registration kTarget({.name = "packed", .run = Run, .fixed_bytes = int64_t{4} << 20});

}  // namespace
}  // namespace trainyard::fuzz::packed
