// Passes the memory of all tensors to cuDNN, and runs the plan.
#include "worker/engine/backend/cuda/dnn/cudnn_plan.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda::dnn {

absl::Status Execute(const BuiltPlan& plan, const Graph& graph, const Bindings& bindings,
                     void* workspace, cudaStream_t stream) {
  const Target& target = *plan.target;
  if (!target.has_device()) {
    return absl::FailedPreconditionError(absl::StrCat("this plan was made for a description of ",
                                                      target.name, ", without a device"));
  }
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const Slot& slot : graph.slots) {
    auto* const whole = static_cast<char*>(BoundTo(slot.whole, bindings));
    if (whole == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("no memory is bound to tensor ", slot.id, " of the plan"));
    }
    if (reinterpret_cast<uintptr_t>(whole + slot.offset) % kVectorBytes != 0) {
      return absl::InvalidArgumentError(absl::StrCat("the memory of tensor ", slot.id,
                                                     " is not aligned to ", kVectorBytes,
                                                     " bytes, for which the plan was made"));
    }
    ids.push_back(slot.id);
    pointers.push_back(whole + slot.offset);
  }
  int64_t offset = plan.workspace_bytes;
  for (const Slot& temporary : graph.temporaries) {
    offset = AlignUp(offset);
    ids.push_back(temporary.id);
    pointers.push_back(static_cast<char*>(workspace) + offset);
    offset += temporary.bytes;
  }
  for (const Scalar& scalar : graph.scalars) {
    ids.push_back(scalar.id);
    pointers.push_back(const_cast<float*>(&scalar.value));
  }
  TY_ASSIGN_OR_RETURN(const Descriptor pack,
                      Descriptor::Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "bindings",
                                       {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids},
                                        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers},
                                        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace}}));
  TY_RETURN_IF_ERROR(StatusOf(cudnnSetStream(target.handle, stream), "set the stream"));
  const cudnnStatus_t status = cudnnBackendExecute(target.handle, plan.plan.get(), pack.get());
  return status == CUDNN_STATUS_SUCCESS ? absl::OkStatus() : StatusOf(status, "execute a plan");
}

absl::Status CudnnPlan::Run(const ConvMemory& memory, void* workspace, cudaStream_t stream) const {
  return Execute(plan_, graph_, BindingsOf(memory), workspace, stream);
}

absl::Status CudnnPlan::Run(const AttentionMemory& memory, void* workspace,
                            cudaStream_t stream) const {
  return Execute(plan_, graph_, BindingsOf(memory), workspace, stream);
}

}  // namespace trainyard::engine::cuda::dnn
