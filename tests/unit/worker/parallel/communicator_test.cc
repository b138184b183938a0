// Runs the cases of all communicators over host memory, and cases that are particular to each.
#include <cstdlib>
#include <string>
#include <thread>

#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/parallel/communicator_cases.h"
#include "worker/parallel/gloo/gloo_communicator.h"
#include "worker/parallel/shm/shm_communicator.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(AllTransports, CommunicatorTest,
                         ::testing::Combine(::testing::Values(LocalTransport(), GlooTransport(),
                                                              ShmTransport()),
                                            ::testing::Values(1, 2, 3, 4)),
                         NameOfSized);
INSTANTIATE_TEST_SUITE_P(AllTransports, CommunicatorFaultTest,
                         ::testing::Values(LocalTransport(), GlooTransport(), ShmTransport()),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(AllTransports, CommunicatorLossTest,
                         ::testing::Values(LocalTransport(), GlooTransport(), ShmTransport()),
                         NameOf);

class GlooRendezvousTest : public ::testing::Test {
 protected:
  GlooRendezvousTest() {
    options_.world_size = 2;
    options_.run_dir = run_dir::RunDir(folder_);
    options_.connect_timeout = absl::Milliseconds(200);
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
  GlooOptions options_;
};

TEST_F(GlooRendezvousTest, ARankThatDoesNotAppearIsNamed) {
  const auto communicator = ConnectGloo(options_);
  EXPECT_EQ(ErrorReason(communicator.status()), "PEER_LOST");
  EXPECT_THAT(std::string(communicator.status().message()),
              HasSubstr("rank 1 did not appear within 200ms"));
}

TEST_F(GlooRendezvousTest, TheWaitCanBeCancelled) {
  const std::atomic<bool> cancelled = true;
  options_.connect_timeout = absl::Seconds(60);
  options_.cancelled = &cancelled;
  EXPECT_TRUE(absl::IsCancelled(ConnectGloo(options_).status()));
}

TEST_F(GlooRendezvousTest, AnUnknownInterfaceIsNamed) {
  options_.interface = "nosuch0";
  const auto communicator = ConnectGloo(options_);
  EXPECT_TRUE(absl::IsFailedPrecondition(communicator.status())) << communicator.status();
  EXPECT_THAT(std::string(communicator.status().message()), HasSubstr("'nosuch0'"));
}

TEST_F(GlooRendezvousTest, KeysOfAnEarlierRunAreReported) {
  ASSERT_TRUE(run_dir::SetRendezvousKey(options_.run_dir, "gloo.0", "old").ok());
  const auto communicator = ConnectGloo(options_);
  EXPECT_THAT(std::string(communicator.status().message()), HasSubstr("keys of an earlier run"));
}

TEST_F(GlooRendezvousTest, AKeyOfAnotherFormIsReported) {
  for (const char* key : {"gloo.1", "gloo.address.1"}) {
    ASSERT_TRUE(run_dir::SetRendezvousKey(options_.run_dir, key, "other").ok());
  }
  EXPECT_THAT(std::string(ConnectGloo(options_).status().message()),
              HasSubstr("the rendezvous key of rank 1 has 5 bytes"));
}

TEST_F(GlooRendezvousTest, ErrorsNameTheAddressesOfBothRanks) {
  options_.connect_timeout = absl::Seconds(60);
  GlooOptions other = options_;
  other.rank = 1 - options_.rank;
  other.worker = "beta";
  options_.worker = "alpha";
  std::thread leaver([&other] { EXPECT_TRUE(ConnectGloo(other).ok()); });
  auto communicator = ConnectGloo(options_);
  leaver.join();
  ASSERT_TRUE(communicator.ok()) << communicator.status();
  const absl::Status lost = Meet(**communicator);
  EXPECT_EQ(ErrorReason(lost), "PEER_LOST");
  const std::string message(lost.message());
  EXPECT_THAT(message, HasSubstr("; rank 1 is at 127.0.0.1:"));
  EXPECT_THAT(message, HasSubstr(" on worker beta, rank 0 at 127.0.0.1 on worker alpha"));
}

class ShmRendezvousTest : public ::testing::Test {
 protected:
  ShmRendezvousTest() {
    options_.world_size = 2;
    options_.run_dir = run_dir::RunDir(folder_);
    options_.connect_timeout = absl::Milliseconds(50);
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
  ShmOptions options_;
};

TEST_F(ShmRendezvousTest, ARankThatDoesNotAppearIsNamed) {
  EXPECT_THAT(std::string(ConnectShm(options_).status().message()),
              HasSubstr("rank 0: connect 0: rank 1 did not take part within 50ms"));
}

TEST_F(ShmRendezvousTest, TheWaitCanBeCancelled) {
  const std::atomic<bool> cancelled = true;
  options_.connect_timeout = absl::Seconds(60);
  options_.cancelled = &cancelled;
  options_.rank = 1;
  EXPECT_TRUE(absl::IsCancelled(ConnectShm(options_).status()));
}

TEST_F(ShmRendezvousTest, KeysOfAnEarlierRunAreReported) {
  ASSERT_TRUE(run_dir::SetRendezvousKey(options_.run_dir, "shm.0", "/proc/1/fd/99").ok());
  EXPECT_THAT(std::string(ConnectShm(options_).status().message()),
              HasSubstr("keys of an earlier run"));
  options_.rank = 1;
  EXPECT_THAT(std::string(ConnectShm(options_).status().message()), HasSubstr("/proc/1/fd/99"));
}

TEST_F(ShmRendezvousTest, ASegmentForAnotherNumberOfRanksIsRefused) {
  const std::string path = folder_ + "/other";
  ASSERT_TRUE(ReplaceFile(path, "too short").ok());
  ASSERT_TRUE(run_dir::SetRendezvousKey(options_.run_dir, "shm.0", path).ok());
  options_.rank = 1;
  EXPECT_THAT(std::string(ConnectShm(options_).status().message()),
              HasSubstr("has 9 bytes; expected"));
}

}  // namespace
}  // namespace trainyard::parallel
