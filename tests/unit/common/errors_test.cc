// Tests named errors: reasons and violations travel with the status.
#include "common/base/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Errors, CarryCodeReasonAndMessage) {
  const absl::Status status = error::JobStateConflict("jobs/3", "SUCCEEDED", "cancelled");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorReason(status), "JOB_STATE_CONFLICT");
  EXPECT_EQ(status.message(), "job 'jobs/3' is SUCCEEDED and cannot be cancelled");
}

TEST(Errors, AStatusOfAnotherOriginHasNoReason) {
  EXPECT_EQ(ErrorReason(absl::NotFoundError("x")), "");
  EXPECT_EQ(ErrorReason(absl::OkStatus()), "");
  EXPECT_THAT(GetFieldViolations(absl::NotFoundError("x")), IsEmpty());
}

TEST(Errors, ContextKeepsCodeReasonAndViolations) {
  const absl::Status inner = InvalidFields({{"spec.name", "must not be empty"}});
  const absl::Status outer = Annotate(inner, "jobs/a.yaml");
  EXPECT_EQ(outer.code(), inner.code());
  EXPECT_EQ(ErrorReason(outer), error::kInvalidSpec);
  EXPECT_EQ(outer.message(), "jobs/a.yaml: " + std::string(inner.message()));
  EXPECT_EQ(GetFieldViolations(outer), GetFieldViolations(inner));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "context").ok());
}

TEST(Errors, InvalidFieldsTellsAllViolationsAtOnce) {
  const std::vector<FieldViolation> violations = {
      {"spec.train.epochs", "0; expected 1 or more"},
      {"spec.model", "is missing: 'mlp' or 'convnet'"},
  };
  const absl::Status status = InvalidFields(violations);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GetFieldViolations(status), violations);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 violations"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\n  spec.model: is missing"));
}

TEST(Errors, ViolationsMayBeEmptyText) {
  absl::Status status = absl::InvalidArgumentError("x");
  SetFieldViolations(status, {{"", "the whole"}, {"field", ""}});
  EXPECT_THAT(GetFieldViolations(status),
              ElementsAre(FieldViolation{"", "the whole"}, FieldViolation{"field", ""}));
}

// A violation quotes the user's text, which may contain anything.
TEST(Errors, ViolationsMayHoldAnyBytes) {
  const std::vector<FieldViolation> violations = {
      {"a", std::string("\x1e\x1f\0 7:b\0", 8)}, {"12:", ":"}, {"", ""}};
  absl::Status status = absl::InvalidArgumentError("x");
  SetFieldViolations(status, violations);
  EXPECT_EQ(GetFieldViolations(status), violations);
}

TEST(Errors, EachNamesTheValueAndWhatToDo) {
  const std::vector<std::pair<absl::Status, std::string>> cases = {
      {error::JobNotFound("jobs/7"), "jobs/7"},
      {error::AttemptNotFound("jobs/7/attempts/1"), "trainyard show"},
      {error::CheckpointNotFound("step-7"), "step-7"},
      {error::WorkerNotFound("workers/w"), "workers ls"},
      {error::RequestIdReused("id-1"), "id-1"},
      {error::StaleFencingToken("jobs/7", 3, 4), "token 3 is stale; the current one is 4"},
      {error::UnknownSession("s-1"), "register again"},
      {error::OffsetMismatch("log", 10, 20), "starts at 10; expected 20"},
      {error::StateLocked("/state", "process 12"), "process 12"},
      {error::StateNotOwned("/state", 1, 2), "uid 1"},
      {error::AddressInUse("host:1"), "host:1"},
      {error::CommitsLost("/s/t.db", 120, 135), "last 15 commits"},
      {error::DiskFull("/disk"), "/disk"},
      {error::DatasetNotFound("mnist", "a, b"), "looked for a, b"},
      {error::CorruptFile("/f", "byte 3"), "'/f' is corrupt: byte 3"},
      {error::CheckpointDamaged("c/5", "model is missing", "use 4"),
       "'c/5' is damaged on the server: model is missing; use 4"},
      {error::ServerUnreachable("host:1", "refused"), "trainyard up"},
  };
  for (const auto& [status, part] : cases) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(ErrorReason(status), "") << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

}  // namespace
}  // namespace trainyard
