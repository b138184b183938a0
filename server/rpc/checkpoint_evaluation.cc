// Reads the evaluation that a trainer has written into state.json.
#include "server/rpc/checkpoint_evaluation.h"

#include <cmath>
#include <string>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

const Value* Find(const Struct& object, const char* key) {
  const auto found = object.fields().find(key);
  return found == object.fields().end() ? nullptr : &found->second;
}

}  // namespace

std::optional<core::CheckpointEvaluation> ParseEvaluation(absl::string_view state_json) {
  Struct state;
  if (!google::protobuf::util::JsonStringToMessage(std::string(state_json), &state).ok()) {
    return std::nullopt;
  }
  const Value* evaluation = Find(state, "evaluation");
  if (evaluation == nullptr || !evaluation->has_struct_value()) return std::nullopt;
  const Value* metrics = Find(evaluation->struct_value(), "metrics");
  if (metrics == nullptr || !metrics->has_struct_value()) return std::nullopt;
  const Value* loss = Find(metrics->struct_value(), "test.loss");
  const Value* accuracy = Find(metrics->struct_value(), "test.accuracy");
  // A number that is not finite is written as a text.
  if (loss == nullptr || !loss->has_number_value() || accuracy == nullptr ||
      !accuracy->has_number_value()) {
    return std::nullopt;
  }
  if (!std::isfinite(loss->number_value()) || !std::isfinite(accuracy->number_value())) {
    return std::nullopt;
  }
  return core::CheckpointEvaluation{loss->number_value(), accuracy->number_value()};
}

std::optional<core::CheckpointEvaluation> ReadEvaluation(
    const runtime::BlobStore& blobs, const std::vector<core::CheckpointFile>& files) {
  for (const core::CheckpointFile& file : files) {
    if (file.name != "state.json" || file.size > kStateBytesMax) continue;
    const auto text = blobs.Read(file.hash, 0, file.size);
    if (text.ok()) return ParseEvaluation(*text);
  }
  return std::nullopt;
}

}  // namespace trainyard::rpc
