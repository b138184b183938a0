// Tests the links between two stages, each on a thread: over host memory, by way of the host
// between stages that share an emulated device, and over the emulated NCCL between two devices.
#include "worker/parallel/stage_link.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/nccl/nccl_on_cpu.h"
#include "tests/unit/worker/parallel/device_gang.h"
#include "worker/parallel/host_stage_link.h"
#include "worker/parallel/nccl/nccl_stage_link.h"
#include "worker/parallel/staged/staged_stage_link.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;

enum class Way { kHost, kStaged, kNccl };

constexpr int kSlots = 3;
constexpr size_t kFloats = 1000;
constexpr absl::Duration kTimeout = absl::Seconds(20);

// A stage of two, with the memory of its slots. What it is told to compute happens at once in the
// host's memory, and on a device in the order of its stream.
class Stage {
 public:
  Stage(Way way, const Place& place) : way_(way), place_(place) {
    if (way_ == Way::kHost) {
      host_.resize(2 * kSlots, std::vector<float>(kFloats));
      return;
    }
    CheckCuda(cudaSetDevice(way_ == Way::kNccl ? place.rank : 0));
    CheckCuda(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking));
    for (int i = 0; i < 2 * kSlots; ++i) {
      device_.push_back(std::make_unique<DeviceFloats>(kFloats));
    }
  }
  ~Stage() {
    link_ = nullptr;
    if (compute_ == nullptr) return;
    CheckCuda(cudaStreamSynchronize(compute_));
    CheckCuda(cudaStreamDestroy(compute_));
  }

  absl::Status Open(HostLines lines) {
    lines.receives->set_timeout(kTimeout);
    lines.sends->set_timeout(kTimeout);
    if (way_ == Way::kHost) {
      link_ = std::make_unique<HostStageLink>(std::move(lines), kSlots);
      return absl::OkStatus();
    }
    if (way_ == Way::kStaged) {
      TY_ASSIGN_OR_RETURN(link_, MakeStagedStageLink(std::move(lines), kSlots, kFloats, compute_));
      return absl::OkStatus();
    }
    TY_ASSIGN_OR_RETURN(auto down, Connect("down"));
    TY_ASSIGN_OR_RETURN(auto up, Connect("up"));
    NcclLines nccl = {.receives = std::move(place_.rank == 0 ? up : down),
                      .sends = std::move(place_.rank == 0 ? down : up)};
    TY_ASSIGN_OR_RETURN(link_,
                        MakeNcclStageLink(std::move(nccl), std::move(lines), kSlots, compute_));
    return absl::OkStatus();
  }

  int rank() const { return place_.rank; }
  StageLink& link() { return *link_; }
  void Close() { link_ = nullptr; }
  absl::Span<float> out(int slot, size_t size) { return Memory(slot).first(size); }
  absl::Span<float> in(int slot, size_t size) { return Memory(kSlots + slot).first(size); }
  void Compute(std::function<void()> work) {
    if (way_ == Way::kHost) return work();
    CheckCuda(cuda_on_cpu::Enqueue(compute_, std::move(work)));
  }
  void Finish() {
    if (compute_ != nullptr) CheckCuda(cudaStreamSynchronize(compute_));
  }

 private:
  absl::Span<float> Memory(int place) {
    const auto at = static_cast<size_t>(place);
    return way_ == Way::kHost ? absl::MakeSpan(host_[at]) : device_[at]->span();
  }
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> Connect(const std::string& name) {
    NcclOptions options;
    options.rank = place_.rank;
    options.world_size = place_.world_size;
    options.group = {.name = name, .members = {0, 1}};
    options.run_dir = place_.run_dir;
    options.timeout = kTimeout;
    return ConnectNccl(options);
  }

  const Way way_;
  const Place place_;
  cudaStream_t compute_ = nullptr;
  std::vector<std::vector<float>> host_;
  std::vector<std::unique_ptr<DeviceFloats>> device_;
  std::unique_ptr<StageLink> link_;
};

using Work = std::function<absl::Status(Stage&)>;

// Runs `work` for both stages; returns their statuses.
std::vector<absl::Status> RunStages(Way way, const Work& work) {
  cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kMaxDevices);
  const auto down = MakeLocalGroup(2);
  const auto up = MakeLocalGroup(2);
  return RunPlaces(2, [&](const Place& place) -> absl::Status {
    Stage stage(way, place);
    const bool is_first = place.rank == 0;
    TY_RETURN_IF_ERROR(
        stage.Open({.receives = MakeLocalCommunicator(is_first ? up : down, place.rank),
                    .sends = MakeLocalCommunicator(is_first ? down : up, place.rank),
                    .peer = 1 - place.rank}));
    return work(stage);
  });
}

class StageLinks : public ::testing::TestWithParam<Way> {};

float ValueOf(int rank, int message) {
  return static_cast<float>(1000 * rank + message);
}
size_t SizeOf(int message) {
  return message % 4 == 0 ? 1 : kFloats - static_cast<size_t>(message);
}

// Both stages send before they receive, as neighbours do in the middle of 1F1B. They read late what
// they have received, so that a slot that is used again too early is noticed.
TEST_P(StageLinks, CarryBothDirectionsAtOnce) {
  constexpr int kMessages = 24;
  for (const uint64_t seed : {1, 2, 3}) {
    cuda_on_cpu::SetSeed(seed);
    std::vector<std::vector<float>> read(2);
    const auto statuses = RunStages(GetParam(), [&](Stage& stage) -> absl::Status {
      StageLink& link = stage.link();
      std::vector<float>& mine = read[static_cast<size_t>(stage.rank())];
      for (int message = 0; message < kMessages; ++message) {
        const int slot = message % kSlots;
        const size_t size = SizeOf(message);
        TY_RETURN_IF_ERROR(link.AwaitSent(slot));
        const absl::Span<float> out = stage.out(slot, size);
        stage.Compute([out, value = ValueOf(stage.rank(), message)] {
          std::fill(out.begin(), out.end(), value);
        });
        TY_RETURN_IF_ERROR(link.Send(slot, out));
        const absl::Span<float> in = stage.in(slot, size);
        TY_RETURN_IF_ERROR(link.Receive(slot, in));
        stage.Compute([in, &mine] {
          mine.push_back(in.front());
          mine.push_back(in.back());
        });
        TY_RETURN_IF_ERROR(link.Release(slot));
      }
      for (int slot = 0; slot < kSlots; ++slot) TY_RETURN_IF_ERROR(link.AwaitSent(slot));
      stage.Finish();
      return absl::OkStatus();
    });
    EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<float> expected;
      for (int message = 0; message < kMessages; ++message) {
        expected.insert(expected.end(), 2, ValueOf(1 - rank, message));
      }
      EXPECT_EQ(read[static_cast<size_t>(rank)], expected) << "rank " << rank << " seed " << seed;
    }
  }
}

// A stage may send all of its microbatches before it receives anything, as in gpipe.
TEST_P(StageLinks, CarryAsManyMessagesAsThereAreSlots) {
  const auto statuses = RunStages(GetParam(), [&](Stage& stage) -> absl::Status {
    StageLink& link = stage.link();
    const bool is_first = stage.rank() == 0;
    for (const bool sends : {is_first, !is_first}) {
      for (int slot = 0; slot < kSlots; ++slot) {
        const absl::Span<float> out = stage.out(slot, kFloats);
        const absl::Span<float> in = stage.in(slot, kFloats);
        if (sends) {
          stage.Compute([out, in, slot, is_first] {
            for (size_t i = 0; i < kFloats; ++i) {
              out[i] = is_first ? static_cast<float>(slot) + static_cast<float>(i) : 2 * in[i];
            }
          });
          TY_RETURN_IF_ERROR(link.Send(slot, out));
        } else {
          TY_RETURN_IF_ERROR(link.Receive(slot, in));
          if (!is_first) continue;
          stage.Compute([in, slot] {
            for (size_t i = 0; i < kFloats; ++i) {
              ASSERT_EQ(in[i], 2 * (static_cast<float>(slot) + static_cast<float>(i)));
            }
          });
        }
      }
    }
    for (int slot = 0; slot < kSlots; ++slot) TY_RETURN_IF_ERROR(link.AwaitSent(slot));
    stage.Finish();
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

TEST_P(StageLinks, PassNumbersAfterTheValues) {
  const auto statuses = RunStages(GetParam(), [&](Stage& stage) -> absl::Status {
    StageLink& link = stage.link();
    float numbers[] = {0, 0};
    if (stage.rank() == 0) {
      const absl::Span<float> out = stage.out(1, kFloats);
      stage.Compute([out] { std::fill(out.begin(), out.end(), 7.0F); });
      TY_RETURN_IF_ERROR(link.Send(1, out));
      // The other stage receives what was sent before it asks for the numbers.
      TY_RETURN_IF_ERROR(link.SendNumbers({1, 2}));
      TY_RETURN_IF_ERROR(link.ReceiveNumbers(absl::MakeSpan(numbers)));
      EXPECT_EQ(numbers[0], 3);
      EXPECT_EQ(numbers[1], 4);
      return absl::OkStatus();
    }
    const absl::Span<float> in = stage.in(1, kFloats);
    TY_RETURN_IF_ERROR(link.Receive(1, in));
    stage.Compute([in] { EXPECT_EQ(in.back(), 7); });
    TY_RETURN_IF_ERROR(link.ReceiveNumbers(absl::MakeSpan(numbers)));
    EXPECT_EQ(numbers[0], 1);
    EXPECT_EQ(numbers[1], 2);
    TY_RETURN_IF_ERROR(link.SendNumbers({3, 4}));
    stage.Finish();
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

TEST_P(StageLinks, ANeighbourThatIsGoneIsAnError) {
  const auto statuses = RunStages(GetParam(), [&](Stage& stage) -> absl::Status {
    if (stage.rank() == 1) return absl::OkStatus();
    absl::Status status = stage.link().Receive(0, stage.in(0, kFloats));
    EXPECT_FALSE(stage.link().Receive(1, stage.in(1, kFloats)).ok()) << "is not broken";
    return status;
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_TRUE(absl::IsUnavailable(statuses[0])) << statuses[0];
  EXPECT_EQ(ErrorReason(statuses[0]), "PEER_LOST");
  EXPECT_EQ(cuda_on_cpu::nccl::LiveCommunicators(), 0);
}

TEST_P(StageLinks, ANeighbourThatHangsIsAnErrorByTheDeadline) {
  absl::Notification gave_up;
  const auto statuses = RunStages(GetParam(), [&](Stage& stage) -> absl::Status {
    if (stage.rank() == 1) {
      gave_up.WaitForNotification();
      return absl::OkStatus();
    }
    stage.link().set_timeout(absl::Milliseconds(100));
    const absl::Duration start = Clock::Real()->Uptime();
    absl::Status status = stage.link().Receive(0, stage.in(0, kFloats));
    EXPECT_LT(Clock::Real()->Uptime() - start, absl::Seconds(10));
    // Work of the stage itself is not held up.
    stage.Compute([] {});
    stage.Finish();
    stage.Close();
    gave_up.Notify();
    return status;
  });
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[0])) << statuses[0];
  EXPECT_EQ(ErrorReason(statuses[0]), "COLLECTIVE_TIMEOUT");
}

INSTANTIATE_TEST_SUITE_P(Ways, StageLinks, ::testing::Values(Way::kHost, Way::kStaged, Way::kNccl),
                         [](const auto& instance) {
                           return std::string(instance.param == Way::kHost     ? "Host"
                                              : instance.param == Way::kStaged ? "Staged"
                                                                               : "Nccl");
                         });

// NCCL's messages leave only when the neighbour takes them.
TEST(NcclStageLink, AMessageThatNobodyTakesIsAnErrorByTheDeadline) {
  absl::Notification gave_up;
  const auto statuses = RunStages(Way::kNccl, [&](Stage& stage) -> absl::Status {
    if (stage.rank() == 1) {
      gave_up.WaitForNotification();
      return absl::OkStatus();
    }
    stage.link().set_timeout(absl::Milliseconds(100));
    absl::Status status = stage.link().Send(0, stage.out(0, kFloats));
    if (status.ok()) status = stage.link().AwaitSent(0);
    stage.Close();
    gave_up.Notify();
    return status;
  });
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 0: send 2: a peer did not take part within 100ms"));
}

// The copies that the sending thread waits for may fail, as on a device that fell off its bus.
// Both stages have their memory before the devices break, and keep it until they are mended.
TEST(StagedStageLink, AnErrorOfTheDeviceIsNotSent) {
  absl::Notification is_ready, is_mended;
  const auto statuses = RunStages(Way::kStaged, [&](Stage& stage) -> absl::Status {
    if (stage.rank() == 1) {
      const absl::Span<float> in = stage.in(0, kFloats);
      is_ready.Notify();
      EXPECT_FALSE(stage.link().Receive(0, in).ok());
      (void)is_mended.WaitForNotificationWithTimeout(kTimeout);
      return absl::OkStatus();
    }
    (void)is_ready.WaitForNotificationWithTimeout(kTimeout);
    stage.Finish();
    cuda_on_cpu::BreakDevices(cudaErrorIllegalAddress);
    absl::Status status = stage.link().Send(0, stage.out(0, kFloats));
    cuda_on_cpu::BreakDevices(cudaSuccess);
    is_mended.Notify();
    return status;
  });
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("mirroring values of a stage"));
}

}  // namespace
}  // namespace trainyard::parallel
