// Converts between the daemon's types and the messages of trainyard.v1.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainyard/v1/agent.pb.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/report.h"

namespace trainyard::agent {

absl::Duration FromProto(const google::protobuf::Duration& duration);
google::protobuf::Duration ToProto(absl::Duration duration);

// Converts the server's answer. Returns INVALID_ARGUMENT with the attempt if the answer makes no
// sense. The whole answer is then ignored, since an attempt that is missing from it would be
// stopped. It leaves out serial and lease_expire_uptime.
absl::StatusOr<Desired> FromProto(const v1::SyncWorkerResponse& response);

// Returns the samples in a step of a spec as assignment.json has it, or 0 if it does not say, as
// for a user's own program.
int64_t GlobalBatch(const std::string& spec_json);

v1::ObservedAttempt ToProto(const ReportedAttempt& attempt);
v1::Device ToProto(const Device& device);
v1::DatasetList ToProto(const Datasets& datasets);

}  // namespace trainyard::agent
