// Converts between absl::Status and grpc::Status. The google.rpc details are in the trailer
// grpc-status-details-bin: exactly one ErrorInfo (reason, domain "trainyard", metadata), BadRequest
// if fields are wrong, and RetryInfo if waiting helps. Only this unit knows both kinds of status.
#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "trainyard/v1/error.pb.h"

namespace trainyard::rpc {

// By default, gRPC clients refuse trailers of more than 8 KiB. A status with more text is therefore
// cut to these limits; a last violation says how many were left out.
inline constexpr size_t kMessageBytesMax = 1024;
inline constexpr size_t kViolationBytesMax = 4096;

grpc::Status ToGrpcStatus(const absl::Status& status);
// Converts a status to a message, for answers that carry many of them.
google::rpc::Status ToStatusProto(const absl::Status& status);

// Converts back. A status without our details (from gRPC itself, or from another server) keeps its
// code and message and has no reason.
absl::Status FromGrpcStatus(const grpc::Status& status);
absl::Status FromStatusProto(const google::rpc::Status& wire);

}  // namespace trainyard::rpc
