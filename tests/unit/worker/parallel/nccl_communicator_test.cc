// Tests gangs over the emulated NCCL: they connect, wait and fail.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/nccl/nccl_on_cpu.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/parallel/device_gang.h"
#include "worker/parallel/nccl/device_handles.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;

TEST(NcclCommunicator, ARankThatDoesNotCallTimesOutTheOthersByName) {
  const auto statuses = RunNcclGang(
      2,
      [](NcclCommunicator& communicator) -> absl::Status {
        const DeviceFloats values(100);
        TY_RETURN_IF_ERROR(AllReduce(communicator, values.span()));
        if (communicator.rank() == 1) return absl::OkStatus();
        absl::Status status = AllReduce(communicator, values.span());
        EXPECT_EQ(communicator.handle(), nullptr) << "was not aborted";
        EXPECT_EQ(AllReduce(communicator, values.span()), status) << "is not broken";
        return status;
      },
      absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[0])) << statuses[0];
  EXPECT_EQ(ErrorReason(statuses[0]), "COLLECTIVE_TIMEOUT");
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 0: all_reduce 2: a peer did not take part within 100ms"));
  EXPECT_EQ(cuda_on_cpu::nccl::LiveCommunicators(), 0);
}

TEST(NcclCommunicator, WaitingLeavesNoErrorForTheNextLaunch) {
  const auto statuses = RunNcclGang(2, [](NcclCommunicator& communicator) -> absl::Status {
    const DeviceFloats values(100);
    for (int i = 0; i < 20; ++i) {
      TY_RETURN_IF_ERROR(AllReduce(communicator, values.span()));
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

TEST(NcclCommunicator, WorkThatDoesNotEndTimesOut) {
  const auto statuses = RunNcclGang(
      1,
      [](NcclCommunicator& communicator) -> absl::Status {
        cudaStream_t stream = nullptr;
        cudaEvent_t event = nullptr;
        CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CheckCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        const DeviceFloats values(10);
        TY_RETURN_IF_ERROR(communicator.EnqueueAllReduce(values.span(), stream));
        // Each look at the event runs a few of these, which take longer than the timeout.
        for (int i = 0; i < 40; ++i) {
          CheckCuda(cuda_on_cpu::Enqueue(stream, [] {
            absl::Notification never;
            never.WaitForNotificationWithTimeout(absl::Milliseconds(5));
          }));
        }
        CheckCuda(cudaEventRecord(event, stream));
        absl::Status status = communicator.Await(event);
        CheckCuda(cudaStreamSynchronize(stream));
        CheckCuda(cudaEventDestroy(event));
        CheckCuda(cudaStreamDestroy(stream));
        return status;
      },
      absl::Milliseconds(50));
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 0: all_reduce 1: a peer did not"));
}

// Ranks whose devices took the streams in different orders would wait for each other for ever, or
// sum one's first values with another's second ones.
TEST(NcclCommunicator, CollectivesOfSeveralStreamsKeepTheOrderOfTheCalls) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    cuda_on_cpu::SetSeed(seed);
    const auto statuses = RunNcclGang(3, [](NcclCommunicator& communicator) -> absl::Status {
      OwnedStream streams[2];
      OwnedEvent done[2];
      for (OwnedStream& stream : streams) TY_RETURN_IF_ERROR(stream.Create());
      for (OwnedEvent& event : done) TY_RETURN_IF_ERROR(event.Create());
      const auto rank = static_cast<float>(communicator.rank());
      std::vector<std::unique_ptr<DeviceFloats>> values;
      for (int i = 0; i < 6; ++i) {
        const std::vector<float> mine(5, static_cast<float>(10 * i) + rank);
        values.push_back(std::make_unique<DeviceFloats>(mine));
      }
      for (size_t i = 0; i < values.size(); ++i) {
        TY_RETURN_IF_ERROR(communicator.EnqueueAllReduce(values[i]->span(), streams[i % 2].get()));
      }
      for (int i = 0; i < 2; ++i) CheckCuda(cudaEventRecord(done[i].get(), streams[i].get()));
      TY_RETURN_IF_ERROR(communicator.Await(done[0].get()));
      TY_RETURN_IF_ERROR(communicator.Await(done[1].get()));
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i]->Read(), std::vector<float>(5, static_cast<float>(30 * i) + 3)) << i;
      }
      return absl::OkStatus();
    });
    EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
  }
  cuda_on_cpu::SetSeed(1);
}

TEST(NcclCommunicator, AnAsynchronousErrorIsALostPeer) {
  const auto statuses = RunNcclGang(1, [](NcclCommunicator& communicator) -> absl::Status {
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CheckCuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    const DeviceFloats values(10);
    TY_RETURN_IF_ERROR(AllReduce(communicator, values.span()));
    TY_RETURN_IF_ERROR(communicator.EnqueueAllReduce(values.span(), stream));
    CheckCuda(cudaEventRecord(event, stream));
    cuda_on_cpu::nccl::BreakAsynchronously(communicator.handle(), ncclRemoteError);
    // The kernel ends without its sum, and its event happens, but that is not success.
    absl::Status status = communicator.Await(event);
    CheckCuda(cudaStreamSynchronize(stream));
    CheckCuda(cudaEventDestroy(event));
    CheckCuda(cudaStreamDestroy(stream));
    EXPECT_EQ(communicator.handle(), nullptr);
    return status;
  });
  EXPECT_TRUE(absl::IsUnavailable(statuses[0])) << statuses[0];
  EXPECT_EQ(ErrorReason(statuses[0]), "PEER_LOST");
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 0: all_reduce 2: a peer was lost"));
}

// The ranks of each stage form such groups. The last rank of one group is left alone with its
// second sum.
TEST(NcclCommunicator, GroupsConnectSideBySideAndErrorsNameTheRanksOfTheGang) {
  cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kMaxDevices);
  const auto statuses = RunPlaces(4, [](const Place& place) -> absl::Status {
    CheckCuda(cudaSetDevice(place.rank));
    NcclOptions options;
    options.rank = place.rank;
    options.world_size = place.world_size;
    options.run_dir = place.run_dir;
    const bool is_even = place.rank % 2 == 0;
    options.group = {.name = is_even ? "even" : "odd",
                     .members = is_even ? std::vector<int>{0, 2} : std::vector<int>{1, 3}};
    TY_ASSIGN_OR_RETURN(const auto communicator, ConnectNccl(options));
    EXPECT_EQ(communicator->rank(), place.rank / 2);
    EXPECT_EQ(communicator->world_size(), 2);
    const DeviceFloats values(std::vector<float>{static_cast<float>(place.rank)});
    TY_RETURN_IF_ERROR(AllReduce(*communicator, values.span()));
    EXPECT_EQ(values.Read()[0], is_even ? 2 : 4);
    if (place.rank != 3) return absl::OkStatus();
    communicator->set_timeout(absl::Milliseconds(100));
    return AllReduce(*communicator, values.span());
  });
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(statuses[static_cast<size_t>(rank)].ok()) << statuses[static_cast<size_t>(rank)];
  }
  EXPECT_THAT(std::string(statuses[3].message()), HasSubstr("rank 3: all_reduce 2: "));
}

TEST(NcclCommunicator, HostMemoryIsRefused) {
  const auto statuses = RunNcclGang(1, [](NcclCommunicator& communicator) -> absl::Status {
    float value = 1;
    return AllReduce(communicator, absl::MakeSpan(&value, 1));
  });
  EXPECT_TRUE(absl::IsInternal(statuses[0])) << statuses[0];
}

class NcclRendezvousTest : public ::testing::Test {
 protected:
  NcclRendezvousTest() {
    options_.world_size = 2;
    options_.run_dir = run_dir::RunDir(folder_);
    options_.connect_timeout = absl::Milliseconds(50);
  }

  testing::TempDir temp_dir_;
  const std::string folder_ = temp_dir_.path();
  NcclOptions options_;
};

TEST_F(NcclRendezvousTest, RanksThatDoNotAppearTimeOutTheOthers) {
  EXPECT_THAT(std::string(ConnectNccl(options_).status().message()),
              HasSubstr("rank 0: connect 0: a peer did not take part within 50ms"));
  ASSERT_TRUE(RemoveTree(folder_ + "/rendezvous").ok());
  options_.rank = 1;
  EXPECT_THAT(std::string(ConnectNccl(options_).status().message()),
              HasSubstr("rank 1: connect 0: rank 0 did not take part within 50ms"));
}

TEST_F(NcclRendezvousTest, TheWaitCanBeCancelled) {
  const std::atomic<bool> cancelled = true;
  options_.connect_timeout = absl::Seconds(60);
  options_.cancelled = &cancelled;
  EXPECT_TRUE(absl::IsCancelled(ConnectNccl(options_).status()));
  options_.rank = 1;
  EXPECT_TRUE(absl::IsCancelled(ConnectNccl(options_).status()));
  EXPECT_EQ(cuda_on_cpu::nccl::LiveCommunicators(), 0);
}

TEST_F(NcclRendezvousTest, KeysOfAnEarlierRunAreReported) {
  ASSERT_TRUE(run_dir::SetRendezvousKey(options_.run_dir, "nccl.0", "old").ok());
  EXPECT_THAT(std::string(ConnectNccl(options_).status().message()),
              HasSubstr("keys of an earlier run"));
  options_.rank = 1;
  EXPECT_THAT(std::string(ConnectNccl(options_).status().message()), HasSubstr("has 3 digits"));
}

}  // namespace
}  // namespace trainyard::parallel
