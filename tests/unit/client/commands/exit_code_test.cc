// Tests the exit codes, which are an interface: scripts rely on them.
#include "client/link/exit_code.h"

#include <gtest/gtest.h>

#include "common/base/errors.h"

namespace trainyard::link {
namespace {

TEST(ExitCode, EveryKindOfErrorHasTheCodeThatScriptsRelyOn) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCodeOf(InvalidFields({{"a", "b"}})), 2);
  EXPECT_EQ(ExitCodeOf(error::JobNotFound("jobs/1")), 3);
  EXPECT_EQ(ExitCodeOf(absl::UnauthenticatedError("")), 4);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 5);
  EXPECT_EQ(ExitCodeOf(error::JobStateConflict("jobs/1", "FAILED", "cancelled")), 6);
  EXPECT_EQ(ExitCodeOf(error::RequestIdReused("x")), 6);
  EXPECT_EQ(ExitCodeOf(error::QuotaExceeded("user:anna", "devices", 9, 8)), 7);
  EXPECT_EQ(ExitCodeOf(error::ServerUnreachable("unix:/x", "")), 9);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 124);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("Not a directory")), 1) << "no server is meant";
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 130);
}

TEST(ExitCode, AFullDiskIsAFailureAndNoQuotaAndATakenAddressAConflict) {
  EXPECT_EQ(ExitCodeOf(error::DiskFull("/x")), 1);
  EXPECT_EQ(ExitCodeOf(error::AddressInUse("unix:/x")), 6);
  EXPECT_EQ(ExitCodeOf(error::StateLocked("/x", "process 1")), 6);
}

TEST(ExitCode, OnlyAQuotaIsOneAmongTheLimits) {
  const auto exhausted = [](absl::string_view reason) {
    return ExitCodeOf(MakeError(absl::StatusCode::kResourceExhausted, reason, ""));
  };
  EXPECT_EQ(exhausted("SERVER_BUSY"), 9);
  EXPECT_EQ(exhausted("ANSWER_TOO_LARGE"), 1);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("Received message larger than max")), 1);
}

}  // namespace
}  // namespace trainyard::link
