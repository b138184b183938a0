// Reads bundles. Whatever they hold, they take no more memory than their limits, and what is read
// of an entry has the size and the hash of the list.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/bundle/reader.h"
#include "common/bundle/zstd.h"
#include "common/tls/digest.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/tar_headers.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::bundle {
namespace {

namespace product = trainyard::bundle;

constexpr product::Limits kSmall{.manifest_bytes = 1 << 14, .json_bytes = 1 << 14, .entries = 64};
// The window of the decompressor, and its buffers.
constexpr int64_t kWindowBytes = int64_t{16} << 20;

tar::Source SourceOfBytes(absl::string_view bytes) {
  return [bytes]() mutable -> absl::StatusOr<absl::string_view> {
    const absl::string_view piece = bytes.substr(0, 4096);
    bytes.remove_prefix(piece.size());
    return piece;
  };
}

std::string Packed(const std::string& archive) {
  std::string packed;
  product::Compressor compressor([&packed](absl::string_view block) {
    absl::StrAppend(&packed, block);
    return absl::OkStatus();
  });
  TY_CHECK_OK(compressor.Write(archive));
  TY_CHECK_OK(compressor.Finish());
  return packed;
}

// The first byte says if the rest is a file, or a tar file whose checksums are to be repaired and
// which is to be compressed.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const bool is_packed = input.Below(2) == 1;
  const std::string rest(input.Rest());
  const std::string file = is_packed ? rest : Packed(WithChecksums(rest));
  const auto reader = product::BundleReader::Open(SourceOfBytes(file), "fuzz", kSmall);
  if (!reader.ok()) return;
  while (true) {
    const auto entry = (*reader)->Next();
    if (!entry.ok() || *entry == nullptr) return;
    const product::BundleEntry listed = **entry;
    TY_CHECK(product::IsPlainPath(listed.name));
    tls::Sha256Hasher hasher;
    int64_t size = 0;
    while (true) {
      const auto block = (*reader)->Read();
      if (!block.ok()) return;
      if (block->empty()) break;
      size += static_cast<int64_t>(block->size());
      hasher.Update(*block);
    }
    TY_CHECK(size == listed.size);
    TY_CHECK(hasher.Text() == listed.hash);
  }
}

const Registration kTarget({.name = "bundle", .run = Run, .fixed_bytes = kWindowBytes});

}  // namespace
}  // namespace trainyard::fuzz::bundle
