// Leaves waiting to the driver where nobody watches, and looks again and again otherwise.
#include "worker/engine/backend/cuda/runtime/waiter.h"

#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

// The host first looks again at once, since most waits are short, and then sleeps between looks.
constexpr int kBusyLooks = 1000;
constexpr absl::Duration kPause = absl::Microseconds(50);

}  // namespace

absl::Status Waiter::ForEvent(cudaEvent_t event, absl::string_view what) const {
  if (!watch_) return CudaStatus(cudaEventSynchronize(event), what);
  return Poll([event] { return cudaEventQuery(event); }, what);
}

absl::Status Waiter::ForStream(cudaStream_t stream, absl::string_view what) const {
  if (!watch_) return CudaStatus(cudaStreamSynchronize(stream), what);
  return Poll([stream] { return cudaStreamQuery(stream); }, what);
}

absl::Status Waiter::Poll(const std::function<cudaError_t()>& query, absl::string_view what) const {
  Clock* const clock = Clock::Real();
  const absl::Duration begin = clock->Uptime();
  for (int looks = 0; true; ++looks) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return CudaStatus(error, what);
    // "Not ready" stays as the thread's last error, where the next kernel launch would find it.
    (void)cudaGetLastError();
    TY_RETURN_IF_ERROR(watch_(clock->Uptime() - begin));
    if (looks >= kBusyLooks) clock->SleepFor(kPause);
  }
}

}  // namespace trainyard::engine::cuda
