// Calls the CUDA runtime, and turns its errors into statuses that say what to do.
#include "worker/engine/backend/cuda/runtime/runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {
namespace {

// Addresses only have to tell buffers apart, so a part is enough for a buffer that no device could
// hold.
constexpr int64_t kAddressesMax = int64_t{2} << 40;

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorString(error), " (CUDA error ", static_cast<int>(error),
                   ", ", cudaGetErrorName(error), ")");
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status LaunchStatus(absl::string_view what) {
  return CudaStatus(cudaGetLastError(), what);
}

absl::Status CheckDevice() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return absl::OkStatus();
  (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    return absl::UnavailableError(
        absl::StrCat("no NVIDIA driver answers, or it is older than this program's CUDA ",
                     CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10,
                     "; install a newer driver, or train on the CPU (device type cpu)"));
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return absl::UnavailableError(
        "the NVIDIA driver shows no GPU to this process; see nvidia-smi and CUDA_VISIBLE_DEVICES, "
        "or train on the CPU (device type cpu)");
  }
  return CudaStatus(error, "the GPUs cannot be counted");
}

absl::StatusOr<int64_t> DeviceMemory() {
  size_t free = 0;
  size_t total = 0;
  TY_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "asking for the GPU's memory"));
  return static_cast<int64_t>(total);
}

int DeviceCapability() {
  int device = 0;
  int major = 0;
  const bool is_known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess;
  (void)cudaGetLastError();
  return is_known ? major : 0;
}

double MemoryBytesPerMicrosecond() {
  // This is the value of an old small card, used if the driver does not report it.
  constexpr double kFallback = 3e5;
  // The fraction of the theoretical speed, given by the clock and the width of the bus, that is
  // reached in practice.
  constexpr double kEfficiency = 0.85;
  int device = 0;
  int kilohertz = 0;
  int bits = 0;
  const bool is_known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) == cudaSuccess;
  (void)cudaGetLastError();
  // There are two transfers a clock.
  const double bytes = 2e-3 * kilohertz * (bits / 8.0);
  return is_known && bytes > 0 ? kEfficiency * bytes : kFallback;
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(int64_t bytes, Backing backing) {
  DeviceBuffer buffer;
  buffer.bytes_ = AlignUpDevice(bytes);
  if (buffer.bytes_ == 0) return buffer;
  if (backing == Backing::kAddresses) {
    const auto reserved = static_cast<size_t>(std::min(buffer.bytes_, kAddressesMax));
    void* const addresses =
        mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TY_CHECK(addresses != MAP_FAILED);
    buffer.data_ = {static_cast<std::byte*>(addresses),
                    [reserved](std::byte* data) { munmap(data, reserved); }};
    return buffer;
  }
  void* data = nullptr;
  const auto size = static_cast<size_t>(buffer.bytes_);
  TY_RETURN_IF_ERROR(CudaStatus(
      cudaMalloc(&data, size), absl::StrCat("allocating ", buffer.bytes_, " bytes of the device")));
  AddLiveBufferBytes(buffer.bytes_);
  buffer.data_ = {static_cast<std::byte*>(data), [bytes = buffer.bytes_](std::byte* mine) {
                    cudaFree(mine);
                    AddLiveBufferBytes(-bytes);
                  }};
  TY_RETURN_IF_ERROR(buffer.Clear());
  return buffer;
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::CreateFrom(const DeviceAllocator& allocator,
                                                      int64_t bytes) {
  DeviceBuffer buffer;
  buffer.bytes_ = AlignUpDevice(bytes);
  if (buffer.bytes_ == 0) return buffer;
  TY_ASSIGN_OR_RETURN(void* const data, allocator.allocate(static_cast<size_t>(buffer.bytes_)));
  AddLiveBufferBytes(buffer.bytes_);
  buffer.data_ = {static_cast<std::byte*>(data),
                  [free = allocator.free, bytes = buffer.bytes_](std::byte* mine) {
                    free(mine);
                    AddLiveBufferBytes(-bytes);
                  }};
  TY_RETURN_IF_ERROR(buffer.Clear());
  return buffer;
}

absl::Status DeviceBuffer::Clear() const {
  TY_RETURN_IF_ERROR(CudaStatus(cudaMemset(data(), 0, static_cast<size_t>(bytes_)),
                                "clearing memory of the device"));
  // The memory may still be being cleared. Only this wait makes the work of other streams come
  // after the clearing.
  return CudaStatus(cudaStreamSynchronize(nullptr), "clearing memory of the device");
}

absl::Status CopyToDevice(void* to, const void* from, int64_t bytes, absl::string_view what) {
  if (bytes == 0) return absl::OkStatus();
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice), what));
  return CudaStatus(cudaStreamSynchronize(nullptr), what);
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(int64_t bytes) {
  PinnedBuffer buffer;
  void* data = nullptr;
  TY_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, static_cast<size_t>(bytes)),
                                absl::StrCat("pinning ", bytes, " bytes of the host")));
  buffer.data_.reset(static_cast<std::byte*>(data));
  buffer.bytes_ = bytes;
  std::memset(data, 0, static_cast<size_t>(bytes));
  return buffer;
}

absl::StatusOr<Stream> CreateStream() {
  cudaStream_t stream = nullptr;
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return Stream(stream);
}

absl::StatusOr<Event> CreateEvent(bool has_time) {
  cudaEvent_t event = nullptr;
  TY_RETURN_IF_ERROR(CudaStatus(
      cudaEventCreateWithFlags(&event, has_time ? cudaEventDefault : cudaEventDisableTiming),
      "making an event"));
  return Event(event);
}

absl::StatusOr<CapturedGraph> Capture(cudaStream_t stream,
                                      const std::function<absl::Status()>& record) {
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing"));
  const absl::Status recorded = record();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  struct Owner {
    cudaGraph_t graph;
    ~Owner() {
      if (graph != nullptr) cudaGraphDestroy(graph);
    }
  } owner{graph};
  // A failure within a capture also fails its end, and must not be found by a later launch.
  const absl::Status end = CudaStatus(ended, "ending a capture");
  TY_RETURN_IF_ERROR(recorded);
  TY_RETURN_IF_ERROR(end);
  CapturedGraph captured;
  size_t nodes = 0;
  TY_RETURN_IF_ERROR(CudaStatus(cudaGraphGetNodes(graph, nullptr, &nodes), "counting nodes"));
  captured.nodes = static_cast<int64_t>(nodes);
  cudaGraphExec_t executable = nullptr;
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph"));
  captured.executable.reset(executable);
  return captured;
}

}  // namespace trainyard::engine::cuda
