// Allocates noise, and times candidates by events.
#include "worker/engine/backend/cuda/tuning/bench.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/tuning/noise.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kTimedRuns = 3;

absl::Status StatusOf(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The error is reported here, and must not be found by the next launch.
  (void)cudaGetLastError();
  const std::string message =
      absl::StrCat(what, ": CUDA error ", static_cast<int>(error), ": ", cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

}  // namespace

Bench::~Bench() {
  for (void* block : blocks_) (void)cudaFree(block);
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  if (end_ != nullptr) (void)cudaEventDestroy(end_);
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

absl::Status Bench::Open() {
  TY_RETURN_IF_ERROR(StatusOf(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                              "making a stream to measure on"));
  TY_RETURN_IF_ERROR(StatusOf(cudaEventCreate(&begin_), "making an event"));
  return StatusOf(cudaEventCreate(&end_), "making an event");
}

absl::StatusOr<void*> Bench::Allocate(int64_t bytes) {
  void* block = nullptr;
  if (bytes == 0) return block;
  TY_RETURN_IF_ERROR(StatusOf(cudaMalloc(&block, static_cast<size_t>(bytes)),
                              absl::StrCat("allocating ", bytes, " bytes to measure in")));
  blocks_.push_back(block);
  TY_RETURN_IF_ERROR(StatusOf(FillWithNoise(block, bytes, stream_), "filling memory"));
  return block;
}

absl::Status Bench::CheckDevice(const absl::Status& failure) {
  (void)cudaGetLastError();
  // Nothing is wrong with this call, so what it returns is the error that stays.
  const absl::Status now = StatusOf(cudaStreamSynchronize(stream_), "the device");
  if (now.ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(failure.message(), "; after it, ", now.message()));
}

absl::StatusOr<double> Bench::Microseconds(const std::function<absl::Status()>& run) {
  TY_RETURN_IF_ERROR(run());
  TY_RETURN_IF_ERROR(StatusOf(cudaEventRecord(begin_, stream_), "measuring"));
  for (int i = 0; i < kTimedRuns; ++i) {
    TY_RETURN_IF_ERROR(run());
  }
  TY_RETURN_IF_ERROR(StatusOf(cudaEventRecord(end_, stream_), "measuring"));
  TY_RETURN_IF_ERROR(StatusOf(cudaEventSynchronize(end_), "measuring"));
  float milliseconds = 0;
  TY_RETURN_IF_ERROR(StatusOf(cudaEventElapsedTime(&milliseconds, begin_, end_), "measuring"));
  return 1e3 * static_cast<double>(milliseconds) / kTimedRuns;
}

}  // namespace trainyard::engine::cuda
