// Records of the core to messages of the API: what users see.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/spec/diff.h"
#include "server/core/yard/yard.h"
#include "server/runtime/board.h"
#include "server/store/metrics_store.h"
#include "trainyard/v1/checkpoint.pb.h"
#include "trainyard/v1/event.pb.h"
#include "trainyard/v1/fleet.pb.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

v1::JobState ToProto(const core::JobState& state);
v1::StopReason ToProto(core::StopReason reason);
v1::Job ToProto(const runtime::JobView& view);
v1::Attempt ToProto(const core::AttemptRecord& attempt);
// Without metrics: these are in the metrics store.
v1::Checkpoint ToProto(const core::CheckpointRecord& checkpoint);
v1::Event ToProto(const core::EventRecord& event);
// With last heartbeat and the attempts that hold its devices.
v1::Worker ToProto(const core::WorkerRecord& worker, const core::Yard& yard);
v1::MetricPoint ToProto(const store::StoredPoint& stored);
v1::SpecDifference ToProto(const spec::FieldDifference& difference);

v1::Explanation ToProto(const core::Explanation& explanation, core::Now now);

// A serialized spec of a record.
v1::JobSpec ParseSpec(const std::string& serialized);
// What the job runs: of an array, its own element's spec.
v1::JobSpec ResolvedSpecOf(const core::JobRecord& job);
// What was asked for beside the spec.
void SetOptions(const core::Submission& submission, v1::Job& job);

google::protobuf::Timestamp ToTimestamp(int64_t microseconds);
int64_t FromTimestamp(const google::protobuf::Timestamp& time);
google::protobuf::Duration ToDuration(int64_t microseconds);

}  // namespace trainyard::rpc
