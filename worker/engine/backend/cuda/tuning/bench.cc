// Allocates noise, and times candidates by events.
#include "worker/engine/backend/cuda/tuning/bench.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/tuning/noise.h"

namespace trainyard::engine::cuda {
namespace {

constexpr int kTimedRuns = 3;
// A sample of all pieces takes about as long to compare as the runs that are timed.
constexpr int64_t kPieces = 64;
constexpr int64_t kPieceBytes = int64_t{1} << 17;

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
  TY_RETURN_IF_ERROR(Fill(block, bytes));
  return block;
}

absl::Status Bench::Fill(void* block, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return StatusOf(FillWithNoise(block, bytes, stream_), "filling memory");
}

absl::StatusOr<std::vector<std::byte>> Bench::Sample(const void* block, int64_t bytes) {
  const bool is_whole = bytes <= kPieces * kPieceBytes;
  const int64_t piece_bytes = is_whole ? bytes : kPieceBytes;
  std::vector<std::byte> sample(static_cast<size_t>(is_whole ? bytes : kPieces * kPieceBytes));
  for (int64_t piece = 0; piece * piece_bytes < static_cast<int64_t>(sample.size()); ++piece) {
    // Pieces begin at whole elements.
    constexpr int64_t kAlignment = 4;
    const int64_t begin = piece < kPieces - 1 ? piece * (bytes - piece_bytes) / (kPieces - 1) /
                                                    kAlignment * kAlignment
                                              : bytes - piece_bytes;
    TY_RETURN_IF_ERROR(
        StatusOf(cudaMemcpyAsync(sample.data() + piece * piece_bytes,
                                 static_cast<const std::byte*>(block) + begin,
                                 static_cast<size_t>(piece_bytes), cudaMemcpyDeviceToHost, stream_),
                 "reading what a candidate has computed"));
  }
  TY_RETURN_IF_ERROR(StatusOf(cudaStreamSynchronize(stream_), "running a candidate"));
  return sample;
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
