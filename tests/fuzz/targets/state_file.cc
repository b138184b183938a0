// Reads state.json of a checkpoint: as the trainer that resumes from it, and as the server that
// takes its evaluation over.
#include "worker/trainer/run/state_file.h"
#include "common/base/check.h"
#include "server/rpc/checkpoint_evaluation.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::state_file {
namespace {

void Run(absl::string_view input) {
  (void)rpc::ParseEvaluation(input);
  static auto* file = new MemoryFile;
  file->Set(input);
  const auto state = trainer::ReadState(file->path());
  if (!state.ok()) return;
  const std::string written = trainer::EncodeState(*state);
  file->Set(written);
  const auto again = trainer::ReadState(file->path());
  TY_CHECK_OK(again.status());
  TY_CHECK(trainer::EncodeState(*again) == written);
}

const Registration kTarget({.name = "state_file", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::state_file
