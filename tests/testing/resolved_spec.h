// Resolved specs for tests that make submissions by hand.
#pragma once

#include <cstdint>
#include <string>

#include "server/codec/submission.h"
#include "server/core/lifecycle/submission.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::testing {

// A serialized spec that asks for what the submission's fields say. What they leave at its default
// is left out, as by a server that did not know it yet.
inline std::string ResolvedSpec(const core::Submission& submission) {
  const auto set_duration = [](int64_t us, auto mutable_duration) {
    if (us == 0) return;
    mutable_duration()->set_seconds(us / 1'000'000);
    mutable_duration()->set_nanos(static_cast<int32_t>(us % 1'000'000 * 1000));
  };
  v1::JobSpec spec;
  spec.set_name(submission.name);
  spec.set_project(submission.project);
  spec.mutable_tags()->Add(submission.tags.begin(), submission.tags.end());
  if (submission.judged_by_loss) spec.mutable_model()->mutable_gpt2();
  v1::DevicesSpec& devices = *spec.mutable_devices();
  devices.set_count(submission.demand.count);
  if (!submission.demand.type.empty()) devices.set_type(submission.demand.type);
  if (submission.demand.mixed) devices.set_mixed(true);
  if (submission.demand.min_count > 0) devices.set_min(submission.demand.min_count);
  if (submission.demand.memory_bytes > 0) {
    devices.mutable_memory()->set_bytes(submission.demand.memory_bytes);
  }
  devices.mutable_labels()->insert(submission.demand.labels.begin(),
                                   submission.demand.labels.end());
  if (submission.demand.spread) devices.set_spread(true);
  if (submission.demand.bf16) spec.mutable_train()->set_precision(v1::PRECISION_BF16);
  if (submission.auto_precision) spec.mutable_train()->set_precision(v1::PRECISION_AUTO);
  spec.mutable_checkpoint()->mutable_keep()->set_last(submission.checkpoints_kept);
  if (submission.keeps_best) spec.mutable_checkpoint()->mutable_keep()->set_best(true);
  spec.set_priority(submission.priority);
  spec.set_max_retries(submission.max_retries);
  if (!submission.preemptible) spec.set_preemptible(false);
  set_duration(submission.time_limit_us, [&] { return spec.mutable_time_limit(); });
  set_duration(submission.time_limit_warning_us, [&] { return spec.mutable_time_limit_warning(); });
  set_duration(submission.disconnect_keep_us,
               [&] { return spec.mutable_on_disconnect()->mutable_keep(); });
  return spec.SerializeAsString();
}

// Sets the resolved spec, and what follows from it.
inline void SetResolvedSpec(core::Submission& submission) {
  submission.resolved_spec = ResolvedSpec(submission);
  v1::JobSpec spec;
  spec.ParseFromString(submission.resolved_spec);
  codec::TakeSpec(spec, submission);
}

}  // namespace trainyard::testing
