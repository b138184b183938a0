#include "common/rpc/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/errors.h"
#include "trainyard/v1/error.pb.h"

namespace trainyard::rpc {
namespace {

absl::Status RoundTrip(const absl::Status& status) {
  return FromGrpcStatus(ToGrpcStatus(status));
}

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status wire;
  EXPECT_TRUE(wire.ParseFromString(status.error_details()));
  return wire;
}

TEST(RpcStatus, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(RoundTrip(absl::OkStatus()).ok());
}

TEST(RpcStatus, CodeMessageAndReasonSurviveTheRoundTrip) {
  const absl::Status status = RoundTrip(error::JobStateConflict("jobs/3", "FAILED", "cancelled"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "JOB_STATE_CONFLICT");
  EXPECT_EQ(status.message(), "job 'jobs/3' is FAILED and cannot be cancelled");
}

TEST(RpcStatus, ViolationsMetadataAndRetryDelaySurviveTheRoundTrip) {
  const std::vector<FieldViolation> violations = {{"spec.name", "is missing"},
                                                  {"spec.train.seed", "is -1"}};
  absl::Status status = InvalidFields(violations);
  SetErrorMetadata(status, {{"limit", "7"}, {"user", "anna"}});
  SetRetryDelay(status, absl::Milliseconds(1500));
  const absl::Status back = RoundTrip(status);
  EXPECT_EQ(GetFieldViolations(back), violations);
  EXPECT_EQ(GetErrorMetadata(back).at("user"), "anna");
  EXPECT_EQ(GetRetryDelay(back), absl::Milliseconds(1500));
  EXPECT_EQ(back, status);
}

TEST(RpcStatus, EveryErrorCarriesExactlyOneErrorInfo) {
  for (const absl::Status& status :
       {absl::InternalError("x"), error::JobNotFound("jobs/1"), InvalidFields({{"a", "b"}})}) {
    const google::rpc::Status wire = Details(ToGrpcStatus(status));
    int infos = 0;
    for (const auto& detail : wire.details()) {
      google::rpc::ErrorInfo info;
      if (!detail.UnpackTo(&info)) continue;
      ++infos;
      EXPECT_EQ(info.domain(), "trainyard");
      EXPECT_FALSE(info.reason().empty());
    }
    EXPECT_EQ(infos, 1) << status;
    EXPECT_EQ(wire.code(), static_cast<int>(status.code()));
    EXPECT_EQ(wire.message(), status.message());
  }
}

TEST(RpcStatus, TheExpectedOffsetTravelsAsMetadata) {
  const absl::Status status = RoundTrip(error::OffsetMismatch("log of rank 0", 10, 7));
  EXPECT_EQ(GetErrorMetadata(status).at(error::kExpectedOffset), "7");
}

TEST(RpcStatus, AStatusWithoutOurDetailsKeepsCodeAndMessage) {
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection reset"));
  EXPECT_EQ(status, absl::UnavailableError("connection reset"));
  EXPECT_EQ(ErrorReason(status), "");
  const absl::Status garbage =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::ABORTED, "m", "\xff\xff\xff"));
  EXPECT_EQ(garbage, absl::AbortedError("m"));
}

TEST(RpcStatus, WhatDoesNotFitInATrailerIsCutAndCounted) {
  const std::vector<FieldViolation> violations(1000, {"spec.field", std::string(90, 'x')});
  const grpc::Status wire = ToGrpcStatus(InvalidFields(violations));
  EXPECT_LE(wire.error_message().size(), kMessageBytesMax);
  EXPECT_LE(wire.error_details().size(), 7000u);
  const auto back = GetFieldViolations(FromGrpcStatus(wire));
  ASSERT_EQ(back.size(), 41u);
  EXPECT_EQ(back.back().description, "... and 960 more");
}

TEST(RpcStatus, ALongMessageIsCutBetweenCharacters) {
  std::string message;
  while (message.size() < 2000) message += "\xc3\xa4";
  const grpc::Status wire = ToGrpcStatus(absl::InternalError("x" + message));
  EXPECT_LE(wire.error_message().size(), kMessageBytesMax);
  EXPECT_EQ((wire.error_message().size() - 1 - 4) % 2, 0u);
}

}  // namespace
}  // namespace trainyard::rpc
