// Asks the trainer for the least memory of a spec, and the server for its workers.
#include "client/commands/memory_need.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/trainer_plan.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/resolve.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace trainyard::commands {
namespace {

// A submission should not wait for a plan for long. The rank that runs the job plans it anyway.
constexpr absl::Duration kPlanMax = absl::Seconds(10);
// All plans of one call together.
constexpr absl::Duration kPlansMax = absl::Seconds(20);

// Returns the spec without what has no influence on the memory of a step.
v1::JobSpec WhatNeedsMemory(const v1::JobSpec& resolved) {
  v1::JobSpec spec;
  spec.set_name("plan");
  *spec.mutable_model() = resolved.model();
  *spec.mutable_data() = resolved.data();
  *spec.mutable_train() = resolved.train();
  spec.mutable_train()->set_epochs(1);
  spec.mutable_train()->set_seed(1);
  *spec.mutable_optimizer() = resolved.optimizer();
  const auto* reflection = spec.optimizer().GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> rules;
  reflection->ListFields(spec.optimizer(), &rules);
  for (const auto* rule : rules) {
    if (rule->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    auto* message = reflection->MutableMessage(spec.mutable_optimizer(), rule);
    if (const auto* lr = message->GetDescriptor()->FindFieldByName("lr"); lr != nullptr) {
      message->GetReflection()->SetDouble(message, lr, 0.1);
    }
  }
  *spec.mutable_devices() = resolved.devices();
  *spec.mutable_memory() = resolved.memory();
  *spec.mutable_stages() = resolved.stages();
  return spec;
}

std::optional<v1::MemoryNeed> ReadNeed(const std::string& answer) {
  const auto json = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  v1::MemoryNeed need;
  const auto read = [&json](const char* key) {
    const auto field = json.find(key);
    return field != json.end() && field->is_number_integer()
               ? std::max<int64_t>(field->get<int64_t>(), 0)
               : 0;
  };
  need.set_host_bytes(read("host_bytes"));
  need.set_gpu_bytes(read("gpu_bytes"));
  if (need.host_bytes() == 0 && need.gpu_bytes() == 0) return std::nullopt;
  return need;
}

bool Suits(const v1::Worker& worker, const v1::Device& device, const v1::DevicesSpec& wanted) {
  if (!wanted.type().empty() && device.type() != wanted.type()) return false;
  if (device.memory_bytes() < wanted.memory().bytes()) return false;
  return std::all_of(wanted.labels().begin(), wanted.labels().end(), [&worker](const auto& label) {
    const auto found = worker.labels().find(label.first);
    return found != worker.labels().end() && found->second == label.second;
  });
}

}  // namespace

std::optional<v1::MemoryNeed> MemoryPlanner::NeedOf(const v1::JobSpec& written) {
  const auto resolved = spec::ResolveSpec(written);
  if (!resolved.ok()) return std::nullopt;           // the server tells what is wrong
  if (resolved->has_program()) return std::nullopt;  // nobody can plan it
  const v1::JobSpec spec = WhatNeedsMemory(*resolved);
  const auto [known, is_new] = known_.try_emplace(spec.SerializeAsString());
  if (!is_new || spent_ >= kPlansMax) return known->second;
  const absl::Duration start = Clock::Real()->Uptime();
  const auto answer = AskTrainerForPlan(binary_dir_, spec, {"--format", "need"}, kPlanMax);
  spent_ += Clock::Real()->Uptime() - start;
  if (answer.ok()) known->second = ReadNeed(*answer);
  return known->second;
}

std::string PoolDevices::Text() const {
  return absl::StrCat(count, count == 1 ? " device" : " devices", " of type ", type, " with ",
                      FormatBytes(memory_bytes));
}

absl::StatusOr<std::optional<PoolDevices>> LargestDevices(link::ServerLink& link,
                                                          const v1::DevicesSpec& wanted) {
  TY_ASSIGN_OR_RETURN(const v1::ListWorkersResponse answer,
                      link.Call(&v1::FleetService::Stub::ListWorkers, v1::ListWorkersRequest()));
  std::optional<PoolDevices> largest;
  for (const v1::Worker& worker : answer.workers()) {
    for (const v1::Device& device : worker.devices()) {
      if (device.memory_bytes() == 0 || !Suits(worker, device, wanted)) continue;
      if (!largest.has_value() || device.memory_bytes() > largest->memory_bytes) {
        largest = PoolDevices{device.type(), device.memory_bytes(), 0};
      }
      const bool is_alike =
          device.type() == largest->type && device.memory_bytes() == largest->memory_bytes;
      if (is_alike) ++largest->count;
    }
  }
  return largest;
}

}  // namespace trainyard::commands
