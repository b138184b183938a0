// Reads the MANIFEST of a checkpoint.
#include "worker/checkpoint/manifest.h"
#include "common/base/check.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::manifest {
namespace {

void Run(absl::string_view input) {
  static auto* file = new MemoryFile;
  file->Set(input);
  const auto manifest = checkpoint::ParseManifest(file->path());
  // There is only one spelling.
  if (manifest.ok()) TY_CHECK(checkpoint::EncodeManifest(*manifest) == input);
}

const Registration kTarget({.name = "manifest", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::manifest
