// Resolves specs as the server gets them: as messages, which may hold anything that protobuf can.
#include "common/base/check.h"
#include "common/spec/array.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::fuzz::spec_bytes {
namespace {

void Run(absl::string_view input) {
  v1::JobSpec spec;
  if (!spec.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  spec::DiffSpecs(v1::JobSpec(), spec);
  const auto resolved = spec::ResolveSpec(spec);
  const auto for_trainer = spec::ResolveForTrainer(spec);
  if (!resolved.ok()) return;
  TY_CHECK_OK(for_trainer.status());
  const auto again = spec::ResolveSpec(*resolved);
  TY_CHECK_OK(again.status());
  TY_CHECK(spec::DiffSpecs(*resolved, *again).empty());
  spec::ArrayElement(*resolved, 7);
}

const Registration kTarget({.name = "spec_bytes", .run = Run, .fixed_bytes = kMessageBytes});

}  // namespace
}  // namespace trainyard::fuzz::spec_bytes
