// Checks the frames of tunnels, which come from users and from workers: foreign bytes, both of
// them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/rpc/request.h"
#include "trainyard/v1/tunnel.pb.h"

namespace trainyard::rpc {

// Checks the fields of a request for a tunnel, and adds what is wrong to `check`.
void CheckOpen(const v1::TunnelOpen& open, RequestCheck& check);
// Returns what the audit log says of it: "jobs/12 rank 0 exec: bash -l".
std::string DescribeOpen(const v1::TunnelOpen& open);

// Returns OK if a user may send the frame after the first, or a worker may. Otherwise it returns
// INVALID_ARGUMENT (BAD_TUNNEL_FRAME) with what is wrong.
absl::Status CheckFrameOfUser(const v1::TunnelFrame& frame);
absl::Status CheckFrameOfWorker(const v1::TunnelFrame& frame);

// Returns the error with which the stream of a user ends after a failure that a worker has told.
// Its texts are cut and cleaned.
absl::Status StatusOf(const v1::TunnelFailure& failure);

}  // namespace trainyard::rpc
