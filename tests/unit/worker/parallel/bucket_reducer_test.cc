// Buckets of gradients over the emulated NCCL, eagerly and in captured graphs.
#include "worker/parallel/nccl/bucket_reducer.h"

#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/worker/parallel/device_gang.h"

namespace trainyard::parallel {
namespace {

using ::testing::HasSubstr;

constexpr BucketReducerOptions kSmall = {
    .bucket_elements = 400, .first_bucket_elements = 100, .last_bucket_elements = 60};

class Stream {
 public:
  Stream() { CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { CheckCuda(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// "Computes" gradients: writes `value` to the range, on the stream.
void Write(absl::Span<float> range, float value, cudaStream_t stream) {
  CheckCuda(cuda_on_cpu::Enqueue(stream, [range, value] {
    for (float& element : range) element = value;
  }));
}

// A backward pass over an arena of 1000, from its end, in ranges of 50: each is written, then
// started, and after Finish doubled.
absl::Status Backward(BucketReducer& reducer, absl::Span<float> arena, float value,
                      cudaStream_t stream) {
  for (size_t end = arena.size(); end > 0; end -= 50) {
    Write(arena.subspan(end - 50, 50), value, stream);
    TY_RETURN_IF_ERROR(reducer.Start(static_cast<int64_t>(end) - 50, 50, stream));
  }
  TY_RETURN_IF_ERROR(reducer.Finish(stream));
  CheckCuda(cuda_on_cpu::Enqueue(stream, [arena] {
    for (float& element : arena) element *= 2;
  }));
  return absl::OkStatus();
}

void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(BucketReducer, SumsWhatTheComputeStreamWrote) {
  for (const int ranks : {1, 2, 3}) {
    ExpectAllOk(RunNcclGang(ranks, [](NcclCommunicator& communicator) -> absl::Status {
      const Stream stream;
      const DeviceFloats arena(1000);
      TY_ASSIGN_OR_RETURN(auto reducer, BucketReducer::Create(communicator, arena.span(), kSmall));
      const int ranks_in_all = communicator.world_size();
      for (int round = 1; round <= 3; ++round) {
        const int mine = round * (communicator.rank() + 1);
        TY_RETURN_IF_ERROR(
            Backward(*reducer, arena.span(), static_cast<float>(mine), stream.get()));
        CheckCuda(cudaStreamSynchronize(stream.get()));
        const int sum = round * ranks_in_all * (ranks_in_all + 1) / 2;
        EXPECT_THAT(arena.Read(), ::testing::Each(static_cast<float>(2 * sum)));
        // 100, 400, 400, and 50 each at the end: small first, small last.
        EXPECT_EQ(reducer->buckets(), 5);
      }
      return absl::OkStatus();
    }));
  }
}

TEST(BucketReducer, CollectivesLandInTheCapturedGraph) {
  ExpectAllOk(RunNcclGang(2, [](NcclCommunicator& communicator) -> absl::Status {
    const Stream stream;
    const DeviceFloats arena(1000);
    TY_RETURN_IF_ERROR(communicator.Barrier());
    TY_ASSIGN_OR_RETURN(auto reducer, BucketReducer::Create(communicator, arena.span(), kSmall));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    CheckCuda(cudaMemset(arena.span().data(), 0, 4000));
    CheckCuda(cudaDeviceSynchronize());
    CheckCuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    const auto mine = static_cast<float>(communicator.rank() + 1);
    const absl::Status captured = Backward(*reducer, arena.span(), mine, stream.get());
    CheckCuda(cudaStreamEndCapture(stream.get(), &graph));
    TY_RETURN_IF_ERROR(captured);
    EXPECT_THAT(arena.Read(), ::testing::Each(0.0F)) << "ran while it was captured";
    CheckCuda(cudaGraphInstantiate(&executable, graph, 0));
    for (int launch = 0; launch < 3; ++launch) {
      CheckCuda(cudaMemset(arena.span().data(), 0, 4000));
      // The default stream and this one do not wait for each other.
      CheckCuda(cudaDeviceSynchronize());
      CheckCuda(cudaGraphLaunch(executable, stream.get()));
      CheckCuda(cudaStreamSynchronize(stream.get()));
      EXPECT_THAT(arena.Read(), ::testing::Each(6.0F));
    }
    CheckCuda(cudaGraphExecDestroy(executable));
    CheckCuda(cudaGraphDestroy(graph));
    return absl::OkStatus();
  }));
}

TEST(BucketReducer, RangesApartAreBucketsApart) {
  ExpectAllOk(RunNcclGang(1, [](NcclCommunicator& communicator) -> absl::Status {
    const Stream stream;
    const DeviceFloats arena(1000);
    BucketReducerOptions options;
    options.last_bucket_elements = 0;
    TY_ASSIGN_OR_RETURN(auto reducer, BucketReducer::Create(communicator, arena.span(), options));
    for (const int64_t offset : {500, 0, 750, 250}) {
      TY_RETURN_IF_ERROR(reducer->Start(offset, 250, stream.get()));
    }
    TY_RETURN_IF_ERROR(reducer->Finish(stream.get()));
    EXPECT_EQ(reducer->buckets(), 4);
    for (const int64_t offset : {0, 250, 500, 750}) {
      TY_RETURN_IF_ERROR(reducer->Start(offset, 250, stream.get()));
    }
    TY_RETURN_IF_ERROR(reducer->Finish(stream.get()));
    EXPECT_EQ(reducer->buckets(), 1);
    CheckCuda(cudaStreamSynchronize(stream.get()));
    return absl::OkStatus();
  }));
}

TEST(BucketReducer, WhatIsMissingOrOutsideIsTold) {
  ExpectAllOk(RunNcclGang(1, [](NcclCommunicator& communicator) -> absl::Status {
    const Stream stream;
    const DeviceFloats arena(100);
    TY_ASSIGN_OR_RETURN(auto reducer, BucketReducer::Create(communicator, arena.span(), kSmall));
    EXPECT_TRUE(absl::IsOutOfRange(reducer->Start(60, 41, stream.get())));
    EXPECT_TRUE(absl::IsOutOfRange(reducer->Start(-1, 1, stream.get())));
    TY_RETURN_IF_ERROR(reducer->Start(0, 30, stream.get()));
    EXPECT_THAT(std::string(reducer->Finish(stream.get()).message()),
                HasSubstr("30 elements were summed of an arena of 100"));
    TY_RETURN_IF_ERROR(reducer->Start(0, 100, stream.get()));
    TY_RETURN_IF_ERROR(reducer->Finish(stream.get()));
    CheckCuda(cudaStreamSynchronize(stream.get()));
    return absl::OkStatus();
  }));
}

TEST(BucketReducer, ARankThatHangsTimesOutTheOthers) {
  const auto statuses = RunNcclGang(
      2,
      [](NcclCommunicator& communicator) -> absl::Status {
        if (communicator.rank() == 1) return absl::OkStatus();
        const Stream stream;
        const DeviceFloats arena(1000);
        TY_ASSIGN_OR_RETURN(auto reducer,
                            BucketReducer::Create(communicator, arena.span(), kSmall));
        const absl::Status status = Backward(*reducer, arena.span(), 1, stream.get());
        CheckCuda(cudaDeviceSynchronize());
        return status;
      },
      absl::Milliseconds(100));
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("rank 0: all_reduce 1: a peer did not"));
}

}  // namespace
}  // namespace trainyard::parallel
