#include "worker/engine/backend/cuda/blas/autotune.h"

#include <algorithm>
#include <vector>

#include "worker/engine/backend/cuda/tuning/noise.h"

namespace trainyard::engine::cuda::blas {
namespace {

// Measured runs of a candidate, of which the fastest counts.
constexpr int kTimedRuns = 4;

// Stream, events and memory of a measurement.
class Bench {
 public:
  ~Bench() {
    for (void* memory : memory_) (void)cudaFree(memory);
    if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
    if (end_ != nullptr) (void)cudaEventDestroy(end_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }

  bool Open() {
    return cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess &&
           cudaEventCreate(&begin_) == cudaSuccess && cudaEventCreate(&end_) == cudaSuccess;
  }

  void* Allocate(int64_t bytes) {
    if (bytes == 0) return nullptr;
    void* memory = nullptr;
    if (cudaMalloc(&memory, static_cast<size_t>(bytes)) != cudaSuccess) {
      failed_ = true;
      return nullptr;
    }
    memory_.push_back(memory);
    failed_ |= FillWithNoise(memory, bytes, stream_) != cudaSuccess;
    return memory;
  }
  bool failed() const { return failed_; }
  cudaStream_t stream() const { return stream_; }

  // Milliseconds of the fastest run; negative where it fails.
  float Measure(const std::function<absl::Status()>& run) {
    float fastest = -1;
    // The first run loads the kernel.
    for (int i = 0; i <= kTimedRuns; ++i) {
      float milliseconds = 0;
      if (cudaEventRecord(begin_, stream_) != cudaSuccess || !run().ok() ||
          cudaEventRecord(end_, stream_) != cudaSuccess ||
          cudaEventSynchronize(end_) != cudaSuccess ||
          cudaEventElapsedTime(&milliseconds, begin_, end_) != cudaSuccess) {
        return -1;
      }
      if (i > 0) fastest = fastest < 0 ? milliseconds : std::min(fastest, milliseconds);
    }
    return fastest;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
  bool failed_ = false;
};

}  // namespace

int FastestCandidate(const MatmulProblem& problem, int64_t workspace_bytes, int count,
                     const RunCandidate& run) {
  Bench bench;
  if (!bench.Open()) {
    (void)cudaGetLastError();
    return -1;
  }
  const int64_t a_rows = problem.a_transposed ? problem.k : problem.m;
  const int64_t b_rows = problem.b_transposed ? problem.n : problem.k;
  const TuningMemory memory = {
      .a = bench.Allocate(a_rows * problem.a_stride * SizeOf(problem.input)),
      .b = bench.Allocate(b_rows * problem.b_stride * SizeOf(problem.input)),
      .bias = static_cast<float*>(
          bench.Allocate(problem.bias ? problem.n * static_cast<int64_t>(sizeof(float)) : 0)),
      .d = bench.Allocate(problem.m * problem.d_stride * SizeOf(problem.output)),
      .workspace = bench.Allocate(workspace_bytes)};
  int fastest = -1;
  float fastest_time = 0;
  for (int i = 0; i < count && !bench.failed(); ++i) {
    const float time = bench.Measure([&] { return run(i, memory, bench.stream()); });
    if (time < 0 || (fastest >= 0 && time >= fastest_time)) continue;
    fastest = i;
    fastest_time = time;
  }
  // What failed here must not be found by the next launch.
  (void)cudaGetLastError();
  return fastest;
}

}  // namespace trainyard::engine::cuda::blas
