// Reads the server's answers as the worker daemon does.
#include "common/base/check.h"
#include "tests/fuzz/target.h"
#include "trainyard/v1/agent.pb.h"
#include "worker/agent/convert.h"

namespace trainyard::fuzz::agent_answer {
namespace {

void Run(absl::string_view input) {
  v1::SyncWorkerResponse response;
  if (!response.ParseFromArray(input.data(), static_cast<int>(input.size()))) return;
  const auto desired = agent::FromProto(response);
  if (!desired.ok()) return;
  TY_CHECK(desired->attempts.size() <= static_cast<size_t>(response.attempts_size()));
}

const Registration kTarget({.name = "agent_answer", .run = Run, .fixed_bytes = kMessageBytes});

}  // namespace
}  // namespace trainyard::fuzz::agent_answer
