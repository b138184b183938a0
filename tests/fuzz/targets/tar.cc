// Lists tar archives.
#include "worker/data/tar.h"
#include "common/base/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/tar_headers.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::tar {
namespace {

// If the first byte is even, the checksums are repaired.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const bool repairs = input.Below(2) == 0;
  const absl::string_view rest = input.Rest();
  const std::string archive = repairs ? WithChecksums(rest) : std::string(rest);
  const auto members = data::ListTar(archive);
  if (!members.ok()) return;
  const auto size = static_cast<int64_t>(archive.size());
  for (const data::TarMember& member : *members) {
    TY_CHECK(member.offset >= 0 && member.size >= 0 && member.size <= size - member.offset);
  }
}

const Registration kTarget({.name = "tar", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::tar
