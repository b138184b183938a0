// Reads idx files, plain and packed.
#include "worker/data/idx.h"
#include "common/base/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::idx {
namespace {

// The first byte says how many dimensions are expected: 1 for labels, 3 for images.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const int dimensions = static_cast<int>(1 + input.Below(4));
  static auto* file = new MemoryFile;
  file->Set(input.Rest());
  const auto idx = data::ReadIdx(file->path(), dimensions);
  if (!idx.ok()) return;
  int64_t elements = 1;
  for (const int64_t dimension : idx->dimensions) elements *= dimension;
  TY_CHECK(static_cast<int64_t>(idx->bytes.size() - idx->data_offset) == elements);
}

const Registration kTarget({.name = "idx", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::idx
