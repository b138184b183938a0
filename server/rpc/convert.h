// Converts records of the core to messages of the API, which users see.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/spec/diff.h"
#include "server/codec/time.h"
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
v1::StoredBytes StoredBytesProto(int64_t checkpoints, const core::StreamBytes& streams);
v1::Attempt ToProto(const core::AttemptRecord& attempt);
// Converts a checkpoint without its metrics, which are in the metrics store.
v1::Checkpoint ToProto(const core::CheckpointRecord& checkpoint);
v1::Event ToProto(const core::EventRecord& event);
// Converts a worker. The yard adds the last heartbeat and the attempts that hold the devices.
v1::Worker ToProto(const core::WorkerRecord& worker, const core::Yard& yard);
v1::MetricPoint ToProto(const store::StoredPoint& stored);
v1::SpecDifference ToProto(const spec::FieldDifference& difference);

v1::Explanation ToProto(const core::Explanation& explanation, core::Now now);

using codec::FromTimestamp;
using codec::ToDuration;
using codec::ToTimestamp;

// Return the spec as it was submitted, and with all its defaults.
v1::JobSpec SpecOf(const core::Submission& submission);
v1::JobSpec ResolvedSpecOf(const core::Submission& submission);
// Returns the spec that the job runs. Each job of an array has a spec of its own. Once the job was
// placed, the spec names a precision, whatever was submitted.
v1::JobSpec ResolvedSpecOf(const core::JobRecord& job);
// Returns "convnet" and so on, or "program".
std::string ModelKind(const v1::JobSpec& spec);

}  // namespace trainyard::rpc
