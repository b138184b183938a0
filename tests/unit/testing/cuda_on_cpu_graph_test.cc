// Tests the emulated runtime's capture and graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/testing/cuda_on_cpu_kernels.h"

namespace trainyard::cuda_on_cpu {
namespace {

using engine::cuda::Scale;

constexpr uint64_t kSeeds = 50;

class CudaOnCpuGraph : public testing::Test {
 protected:
  static constexpr int kCount = 40;
  static constexpr size_t kBytes = kCount * sizeof(float);

  void SetUp() override {
    for (cudaStream_t* stream : {&stream_, &side_}) {
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    }
    for (cudaEvent_t* event : {&fork_, &join_}) {
      ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
    }
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&x_), kBytes), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(x_), cudaSuccess);
    for (cudaEvent_t event : {fork_, join_}) {
      EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    }
    for (cudaStream_t stream : {stream_, side_}) {
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
    cudaGetLastError();
  }

  void Begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  void Fork() {
    EXPECT_EQ(cudaEventRecord(fork_, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(side_, fork_, 0), cudaSuccess);
  }
  void Join() {
    EXPECT_EQ(cudaEventRecord(join_, side_), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream_, join_, 0), cudaSuccess);
  }
  cudaGraphExec_t End() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return exec;
  }
  // Ends a capture, which must fail with `error`.
  void EndWith(cudaError_t error) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), error);
    EXPECT_EQ(graph, nullptr);
    // The stream is in the same state as before.
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  float Value() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    float value = 0;
    EXPECT_EQ(cudaMemcpy(&value, x_, sizeof(value), cudaMemcpyDeviceToHost), cudaSuccess);
    return value;
  }
  // The values that launches leave in x under many seeds. Destroys the graph.
  std::set<float> ValuesUnderSeeds(cudaGraphExec_t exec) {
    std::set<float> values;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SetSeed(seed);
      EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
      values.insert(Value());
    }
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    return values;
  }

  cudaStream_t stream_ = nullptr;
  cudaStream_t side_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
  float* x_ = nullptr;
};

TEST_F(CudaOnCpuGraph, AttemptsRunToTheirEndInEachLaunch) {
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  int attempts = 0;
  Begin();
  EXPECT_EQ(EnqueueAttempts(stream_, [&attempts] { return ++attempts % 3 == 0; }), cudaSuccess);
  Scale(x_, kCount, 1, 3, stream_);
  const cudaGraphExec_t exec = End();
  EXPECT_EQ(attempts, 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(Value(), 6);
  EXPECT_EQ(attempts, 6);
}

TEST_F(CudaOnCpuGraph, CaptureRunsNothingAndLaunchesRunAll) {
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  cudaStreamSynchronize(stream_);
  const int64_t before = KernelsLaunched();
  Begin();
  Scale(x_, kCount, 1, 3, stream_);
  EXPECT_EQ(Enqueue(stream_, [this] { x_[0] += 100; }), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  const cudaGraphExec_t exec = End();
  EXPECT_EQ(Value(), 0);
  EXPECT_EQ(cudaGraphUpload(exec, stream_), cudaSuccess);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  }
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(Value(), 309);
  EXPECT_EQ(KernelsLaunched() - before, 3);
}

TEST_F(CudaOnCpuGraph, KeepsTheOrderOfAStream) {
  Begin();
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  Scale(x_, kCount, 1, 3, stream_);
  Scale(x_, kCount, 10, 0, stream_);
  EXPECT_THAT(ValuesUnderSeeds(End()), testing::ElementsAre(30));
}

TEST_F(CudaOnCpuGraph, BranchesRunInAnyOrder) {
  Begin();
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  Fork();
  Scale(x_, kCount, 1, 3, stream_);
  Scale(x_, kCount, 10, 0, side_);
  Join();
  const cudaGraphExec_t exec = End();
  EXPECT_EQ(LastGraphShape().nodes, 3);
  EXPECT_EQ(LastGraphShape().forks, 1);
  EXPECT_EQ(LastGraphShape().joins, 0) << "no node comes after both";
  EXPECT_THAT(ValuesUnderSeeds(exec), testing::ElementsAre(3, 30));
}

TEST_F(CudaOnCpuGraph, AJoinComesAfterBothBranches) {
  Begin();
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  Fork();
  Scale(x_, kCount, 1, 3, side_);
  Join();
  Scale(x_, kCount, 10, 0, stream_);
  EXPECT_THAT(ValuesUnderSeeds(End()), testing::ElementsAre(30));
}

TEST_F(CudaOnCpuGraph, TellsItsNodes) {
  Begin();
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  Scale(x_, kCount, 1, 3, stream_);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  size_t count = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  ASSERT_EQ(count, 2U);
  std::vector<cudaGraphNode_t> nodes(count);
  EXPECT_EQ(cudaGraphGetNodes(graph, nodes.data(), &count), cudaSuccess);
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  EXPECT_EQ(cudaGraphNodeGetType(nodes[0], &type), cudaSuccess);
  EXPECT_EQ(type, cudaGraphNodeTypeMemset);
  EXPECT_EQ(cudaGraphNodeGetType(nodes[1], &type), cudaSuccess);
  EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CudaOnCpuGraph, AGraphWithoutNodesCanBeLaunched) {
  Begin();
  const cudaGraphExec_t exec = End();
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(CudaOnCpuGraph, LaunchesOfOneGraphDoNotOverlap) {
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  cudaStreamSynchronize(stream_);
  Begin();
  Scale(x_, kCount, 1, 1, stream_);
  Scale(x_, kCount, 2, 0, stream_);
  const cudaGraphExec_t exec = End();
  EXPECT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(exec, side_), cudaSuccess);
  EXPECT_EQ(Value(), 6);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(CudaOnCpuGraph, AGraphWithinAGraphRuns) {
  Begin();
  Scale(x_, kCount, 1, 3, stream_);
  const cudaGraphExec_t inner = End();
  Begin();
  cudaMemsetAsync(x_, 0, kBytes, stream_);
  EXPECT_EQ(cudaGraphLaunch(inner, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(inner, stream_), cudaSuccess);
  EXPECT_THAT(ValuesUnderSeeds(End()), testing::ElementsAre(6));
  EXPECT_EQ(cudaGraphExecDestroy(inner), cudaSuccess);
}

TEST_F(CudaOnCpuGraph, AnUnjoinedForkIsAnError) {
  Begin();
  Fork();
  Scale(x_, kCount, 1, 3, side_);
  EndWith(cudaErrorStreamCaptureUnjoined);
}

TEST_F(CudaOnCpuGraph, ForbiddenCallsInvalidateTheCapture) {
  void* pointer = nullptr;
  float value = 0;
  const std::vector<std::function<cudaError_t()>> forbidden = {
      [&] { return cudaStreamSynchronize(stream_); },
      [&] { return cudaStreamSynchronize(side_); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&pointer, 4); },
      [&] { return cudaFree(x_); },
      [&] { return cudaMallocHost(&pointer, 4); },
      [&] { return cudaStreamQuery(stream_); },
      [&] { return cudaEventQuery(join_); },
      [&] { return cudaEventSynchronize(join_); },
      [&] { return cudaMemcpy(x_, &value, sizeof(value), cudaMemcpyHostToDevice); },
      [&] { return cudaMemset(x_, 0, sizeof(value)); },
  };
  for (size_t i = 0; i < forbidden.size(); ++i) {
    Begin();
    EXPECT_EQ(forbidden[i](), cudaErrorStreamCaptureUnsupported) << "call " << i;
    EXPECT_EQ(cudaMemsetAsync(x_, 0, kBytes, stream_), cudaErrorStreamCaptureInvalidated);
    EndWith(cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(CudaOnCpuGraph, ARelaxedCaptureAllowsAllocation) {
  Begin(cudaStreamCaptureModeRelaxed);
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, 4), cudaSuccess);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(End()), cudaSuccess);
}

TEST_F(CudaOnCpuGraph, TheLegacyStreamMayNotBeUsedBesideABlockingCapture) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(x_, 0, kBytes, nullptr), cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(CudaOnCpuGraph, EventsOfCaptureAndOfLifeDoNotMix) {
  // The event is recorded outside of the capture, and waited for inside.
  EXPECT_EQ(cudaEventRecord(fork_, side_), cudaSuccess);
  Begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, fork_, 0), cudaErrorStreamCaptureIsolation);
  EndWith(cudaErrorStreamCaptureInvalidated);
  // The event is recorded inside, and then queried.
  Begin();
  EXPECT_EQ(cudaEventRecord(fork_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(fork_), cudaErrorCapturedEvent);
  EndWith(cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamWaitEvent(side_, fork_, 0), cudaErrorCapturedEvent);
}

TEST_F(CudaOnCpuGraph, ACaptureEndsWhereItBegan) {
  Begin();
  Fork();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(side_, &graph), cudaErrorStreamCaptureUnmatched);
  EndWith(cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu
