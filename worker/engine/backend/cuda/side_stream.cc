// Orders the second stream and the main one by events.
#include "worker/engine/backend/cuda/side_stream.h"

#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/kernels/norm.h"

namespace trainyard::engine::cuda {
namespace {

absl::Status Order(cudaEvent_t event, cudaStream_t before, cudaStream_t after,
                   absl::string_view what) {
  TY_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(event, before), what));
  return CudaStatus(cudaStreamWaitEvent(after, event, 0), what);
}

}  // namespace

absl::StatusOr<SideStream> SideStream::Create(Backing backing) {
  SideStream side;
  TY_ASSIGN_OR_RETURN(side.tickets_, DeviceBuffer::Create(kNormTickets, backing));
  if (backing == Backing::kAddresses) return side;
  TY_ASSIGN_OR_RETURN(side.stream_, CreateStream());
  TY_ASSIGN_OR_RETURN(side.forked_, CreateEvent());
  TY_ASSIGN_OR_RETURN(side.joined_, CreateEvent());
  return side;
}

absl::Status SideStream::Fork(cudaStream_t main) const {
  return Order(forked_.get(), main, stream_.get(), "beginning a branch");
}

absl::Status SideStream::Join(cudaStream_t main) const {
  return Order(joined_.get(), stream_.get(), main, "ending a branch");
}

}  // namespace trainyard::engine::cuda
