// Tests waits for the device that somebody watches.
#include "worker/engine/backend/cuda/runtime/waiter.h"

#include <cuda_runtime_api.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

class WaiterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stream_ = *CreateStream();
    event_ = *CreateEvent();
  }

  // Enqueues work that does not end before `end`, and an event behind it. A thread lets the device
  // do it, since the emulated one works only while a thread of the host waits for it.
  void EnqueueWork(absl::Notification& end) {
    absl::Notification has_begun;
    ASSERT_EQ(cuda_on_cpu::Enqueue(stream_.get(),
                                   [&] {
                                     has_begun.Notify();
                                     end.WaitForNotification();
                                   }),
              cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event_.get(), stream_.get()), cudaSuccess);
    device_ = std::thread([stream = stream_.get()] { (void)cudaStreamSynchronize(stream); });
    has_begun.WaitForNotification();
  }

  Waiter waiter_;
  Stream stream_;
  Event event_;
  std::thread device_;
};

TEST_F(WaiterTest, AWatchEndsAWaitThatWouldBeInVain) {
  absl::Notification end;
  EnqueueWork(end);
  int looks = 0;
  absl::Duration waited;
  waiter_.set_watch([&](absl::Duration so_far) -> absl::Status {
    EXPECT_GE(so_far, waited);
    waited = so_far;
    return ++looks % 5 == 0 ? absl::UnavailableError("rank 1 is lost") : absl::OkStatus();
  });
  EXPECT_EQ(waiter_.ForEvent(event_.get(), "an event"), absl::UnavailableError("rank 1 is lost"));
  waited = absl::ZeroDuration();  // of the next wait
  EXPECT_EQ(waiter_.ForStream(stream_.get(), "work"), absl::UnavailableError("rank 1 is lost"));
  EXPECT_EQ(looks, 10);
  // Looking leaves no error for the next launch.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  end.Notify();
  device_.join();
}

TEST_F(WaiterTest, AWaitEndsWithTheWorkWatchedOrNot) {
  for (const bool is_watched : {false, true}) {
    absl::Notification end;
    EnqueueWork(end);
    bool has_looked = false;
    if (is_watched) {
      waiter_.set_watch([&](absl::Duration) {
        if (!has_looked) end.Notify();
        has_looked = true;
        return absl::OkStatus();
      });
    }
    std::thread later;
    if (!is_watched) {
      later = std::thread([&end] {
        (void)end.WaitForNotificationWithTimeout(absl::Milliseconds(20));
        end.Notify();
      });
    }
    EXPECT_TRUE(waiter_.ForEvent(event_.get(), "an event").ok());
    EXPECT_TRUE(end.HasBeenNotified()) << "it did not wait";
    EXPECT_EQ(cudaEventQuery(event_.get()), cudaSuccess);
    if (later.joinable()) later.join();
    EXPECT_TRUE(waiter_.ForStream(stream_.get(), "work").ok());
    EXPECT_EQ(cudaStreamQuery(stream_.get()), cudaSuccess);
    EXPECT_EQ(has_looked, is_watched);
    waiter_.set_watch({});
    device_.join();
  }
}

TEST_F(WaiterTest, AnEventThatWasNeverRecordedHasHappened) {
  EXPECT_TRUE(waiter_.ForEvent(event_.get(), "an event").ok());
  waiter_.set_watch([](absl::Duration) { return absl::OkStatus(); });
  EXPECT_TRUE(waiter_.ForEvent(event_.get(), "an event").ok());
}

}  // namespace
}  // namespace trainyard::engine::cuda
