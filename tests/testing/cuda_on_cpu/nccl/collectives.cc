// The collectives.
#include <cuda_runtime_api.h>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/nccl/group.h"

namespace trainyard::cuda_on_cpu::nccl {
namespace {

bool IsDeviceMemory(const void* pointer) {
  cudaPointerAttributes attributes = {};
  return pointer != nullptr && cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
         attributes.type == cudaMemoryTypeDevice;
}

ncclResult_t Start(ncclComm_t communicator, cudaStream_t stream, ncclDataType_t type,
                   const Part& part) {
  if (!Exists(communicator) || communicator->finalized || type != ncclFloat32) {
    return ncclInvalidArgument;
  }
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  // A communicator before the last call is through, or of another device, is a mistake.
  if (device != communicator->device) return ncclInvalidArgument;
  const std::shared_ptr<Group> group = communicator->group;
  const int rank = communicator->rank;
  const ncclResult_t before = group->State(rank);
  if (before == ncclInProgress) return ncclInvalidArgument;
  if (before != ncclSuccess) return before;
  if (!IsDeviceMemory(part.in) || !IsDeviceMemory(part.out)) return ncclInvalidArgument;
  const cudaError_t queued = Enqueue(stream, [group, rank, part] { group->Execute(rank, part); });
  if (queued != cudaSuccess) return ncclUnhandledCudaError;
  group->Call(rank);
  return communicator->blocking ? group->AwaitState(rank) : ncclInProgress;
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu::nccl

using trainyard::cuda_on_cpu::nccl::Part;
using trainyard::cuda_on_cpu::nccl::Start;

extern "C" {

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  if (operation != ncclSum) return ncclInvalidArgument;
  return Start(
      communicator, stream, type,
      {Part::Kind::kAllReduce, static_cast<const float*>(in), static_cast<float*>(out), count, -1});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream) {
  if (operation != ncclSum) return ncclInvalidArgument;
  return Start(communicator, stream, type,
               {Part::Kind::kReduceScatter, static_cast<const float*>(in), static_cast<float*>(out),
                count, -1});
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Start(
      communicator, stream, type,
      {Part::Kind::kAllGather, static_cast<const float*>(in), static_cast<float*>(out), count, -1});
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return Start(communicator, stream, type,
               {Part::Kind::kBroadcast, static_cast<const float*>(in), static_cast<float*>(out),
                count, root});
}

}  // extern "C"
