// absl::Status <-> grpc::Status, with google.rpc details in the trailer grpc-status-details-bin:
// exactly one ErrorInfo (reason, domain "trainyard", metadata), BadRequest where fields are wrong,
// RetryInfo where waiting helps. The only place that knows both kinds of status.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "trainyard/v1/error.pb.h"

namespace trainyard::rpc {

// gRPC clients refuse trailers of more than 8 KiB unless told otherwise, so that a status with more
// text is cut to these limits; a last violation says how many were left out.
inline constexpr size_t kMessageBytesMax = 1024;
inline constexpr size_t kViolationBytesMax = 4096;

grpc::Status ToGrpcStatus(const absl::Status& status);
// The status as a message, for answers that carry many of them.
google::rpc::Status ToStatusProto(const absl::Status& status);

// The inverse. A status without our details (of gRPC itself, or of another server) keeps its code
// and message and has no reason.
absl::Status FromGrpcStatus(const grpc::Status& status);
absl::Status FromStatusProto(const google::rpc::Status& wire);

}  // namespace trainyard::rpc
