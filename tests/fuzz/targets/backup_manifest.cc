// Reads the manifest of a snapshot, which whoever can write to the bucket may have written.
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "server/backup/manifest.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::backup_manifest {
namespace {

void Run(absl::string_view input) {
  const auto manifest = backup::ParseManifest(std::string(input), "a manifest");
  if (!manifest.ok()) {
    TY_CHECK(absl::IsDataLoss(manifest.status()) || absl::IsFailedPrecondition(manifest.status()));
    return;
  }
  for (const auto& [name, file] : manifest->files) {
    // No file lands outside of the folder.
    TY_CHECK(!absl::StartsWith(name, "/"));
    for (const absl::string_view part : absl::StrSplit(name, '/')) TY_CHECK(part != "..");
    int64_t left = file.size;
    for (const std::string& piece : file.pieces) {
      TY_CHECK(piece.size() == 64 && left > 0);
      left -= backup::kPieceBytes;
    }
    TY_CHECK(file.pieces.empty() || left <= 0);
  }
  const auto again = backup::ParseManifest(backup::TextOf(*manifest), "what was written");
  TY_CHECK(again.ok());
  TY_CHECK(again->files.size() == manifest->files.size());
  TY_CHECK(again->is_continuous == manifest->is_continuous);
}

const Registration kTarget({.name = "backup_manifest", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::backup_manifest
