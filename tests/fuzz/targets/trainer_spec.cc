// Reads the spec in an assignment or a state, which is JSON, as trainers and workers do.
#include "tests/fuzz/target.h"
#include "worker/agent/convert.h"
#include "worker/trainer/plan/spec.h"

namespace trainyard::fuzz::trainer_spec {
namespace {

void Run(absl::string_view input) {
  (void)agent::GlobalBatch(std::string(input));
  const auto spec = trainer::ParseSpec(input);
  if (spec.ok()) (void)trainer::IsBitwise(*spec);
}

const Registration kTarget({.name = "trainer_spec", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::trainer_spec
