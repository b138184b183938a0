// The daemon's own words <-> trainyard.v1.
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

// INVALID_ARGUMENT with the attempt where the server's answer makes no sense; the rest of the
// answer then counts for nothing, since a missing attempt would be stopped.
// Leaves out serial and lease_expire_uptime.
absl::StatusOr<Desired> FromProto(const v1::SyncWorkerResponse& response);

// The samples in a step of a spec as assignment.json has it; 0 where it does not say, as for a
// program of the user's.
int64_t GlobalBatch(const std::string& spec_json);

v1::ObservedAttempt ToProto(const ReportedAttempt& attempt);
v1::Device ToProto(const Device& device);

}  // namespace trainyard::agent
