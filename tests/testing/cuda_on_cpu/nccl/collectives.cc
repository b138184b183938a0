// The sum over all ranks, and messages in groups.
#include <cuda_runtime_api.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/nccl/group.h"

namespace trainyard::cuda_on_cpu::nccl {
namespace {

bool IsDeviceMemory(const void* pointer) {
  cudaPointerAttributes attributes = {};
  return pointer != nullptr && cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
         attributes.type == cudaMemoryTypeDevice;
}

// Returns ncclSuccess if a call may be made now, and otherwise the error that the call returns.
ncclResult_t CheckCall(ncclComm_t communicator, ncclDataType_t type) {
  if (!Exists(communicator) || communicator->finalized) return ncclInvalidArgument;
  if (type != ncclFloat32 && type != ncclBfloat16) return ncclInvalidArgument;
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  // It is a mistake to use a communicator before its last call is done, or on another device.
  if (device != communicator->device) return ncclInvalidArgument;
  const ncclResult_t before = communicator->group->State(communicator->rank);
  return before == ncclInProgress ? ncclInvalidArgument : before;
}

// The messages of the calling thread's group, which have one communicator and stream.
struct OpenGroup {
  int depth = 0;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages;
};
thread_local OpenGroup open_group;

ncclResult_t AddMessage(ncclComm_t communicator, cudaStream_t stream, ncclDataType_t type,
                        const Message& message) {
  const ncclResult_t checked = CheckCall(communicator, type);
  if (checked != ncclSuccess) return checked;
  if (type != ncclFloat32) return ncclInvalidArgument;
  const void* memory = message.in != nullptr ? message.in : message.out;
  if (!IsDeviceMemory(memory) || message.peer < 0 || message.peer >= communicator->group->ranks()) {
    return ncclInvalidArgument;
  }
  const bool is_other = communicator != open_group.communicator || stream != open_group.stream;
  if (!open_group.messages.empty() && is_other) return ncclInvalidUsage;
  open_group.communicator = communicator;
  open_group.stream = stream;
  open_group.messages.push_back(message);
  return ncclSuccess;
}

ncclResult_t EndGroup() {
  if (--open_group.depth > 0) return ncclSuccess;
  const std::vector<Message> messages = std::exchange(open_group.messages, {});
  if (messages.empty()) return ncclSuccess;
  const ncclComm_t communicator = open_group.communicator;
  const std::shared_ptr<Group> group = communicator->group;
  const int rank = communicator->rank;
  const auto progress = std::make_shared<Progress>();
  const cudaError_t queued = EnqueueAttempts(open_group.stream, [group, rank, messages, progress] {
    return group->ExecuteMessages(rank, messages, *progress);
  });
  if (queued != cudaSuccess) return ncclUnhandledCudaError;
  group->CallMessages(rank, messages);
  return communicator->blocking ? group->AwaitState(rank) : ncclInProgress;
}

// A message outside of a group forms a group of its own.
ncclResult_t StartMessage(ncclComm_t communicator, cudaStream_t stream, ncclDataType_t type,
                          const Message& message) {
  ++open_group.depth;
  const ncclResult_t added = AddMessage(communicator, stream, type, message);
  const ncclResult_t ended = EndGroup();
  return added == ncclSuccess ? ended : added;
}

ncclResult_t Start(ncclComm_t communicator, cudaStream_t stream, const Part& part) {
  const ncclResult_t checked = CheckCall(communicator, part.type);
  if (checked != ncclSuccess) return checked;
  const std::shared_ptr<Group> group = communicator->group;
  const int rank = communicator->rank;
  if (!IsDeviceMemory(part.in) || !IsDeviceMemory(part.out)) return ncclInvalidArgument;
  const auto progress = std::make_shared<Progress>();
  const cudaError_t queued = EnqueueAttempts(
      stream, [group, rank, part, progress] { return group->Execute(rank, part, *progress); });
  if (queued != cudaSuccess) return ncclUnhandledCudaError;
  group->Call(rank);
  return communicator->blocking ? group->AwaitState(rank) : ncclInProgress;
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu::nccl

using trainyard::cuda_on_cpu::nccl::EndGroup;
using trainyard::cuda_on_cpu::nccl::open_group;
using trainyard::cuda_on_cpu::nccl::Part;
using trainyard::cuda_on_cpu::nccl::Start;
using trainyard::cuda_on_cpu::nccl::StartMessage;

extern "C" {

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  if (operation != ncclSum) return ncclInvalidArgument;
  return Start(communicator, stream, {in, out, count, type});
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return StartMessage(communicator, stream, type,
                      {.peer = peer, .in = static_cast<const float*>(in), .count = count});
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return StartMessage(communicator, stream, type,
                      {.peer = peer, .out = static_cast<float*>(out), .count = count});
}

ncclResult_t ncclGroupStart() {
  ++open_group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return open_group.depth == 0 ? ncclInvalidUsage : EndGroup();
}

}  // extern "C"
