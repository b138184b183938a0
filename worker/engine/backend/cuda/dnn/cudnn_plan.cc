// Binds the memory of a problem to the tensors of its graph, and runs the plan.
#include "worker/engine/backend/cuda/dnn/cudnn_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/attention_graph.h"
#include "worker/engine/backend/cuda/dnn/conv_slots.h"

namespace trainyard::engine::cuda::dnn {
namespace {

// Returns where queries (0), keys (1) or values (2) begin in a tensor that contains them next to
// each other.
void* PartOf(void* whole, const Graph& graph, int64_t part) {
  if (whole == nullptr) {
    return nullptr;
  }
  return static_cast<char*>(whole) + part * graph.part_bytes;
}

}  // namespace

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
    const auto bound = std::find_if(bindings.begin(), bindings.end(),
                                    [&](const auto& binding) { return binding.first == slot.id; });
    if (bound == bindings.end() || bound->second == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("no memory is bound to tensor ", slot.id, " of the plan"));
    }
    if (reinterpret_cast<uintptr_t>(bound->second) % kVectorBytes != 0) {
      return absl::InvalidArgumentError(absl::StrCat("the memory of tensor ", slot.id,
                                                     " is not aligned to ", kVectorBytes,
                                                     " bytes, for which the plan was made"));
    }
    ids.push_back(slot.id);
    pointers.push_back(bound->second);
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
  const NormMemory& norm = memory.norm;
  Bindings bindings = {{kX, memory.x},
                       {kWeight, memory.weight},
                       {kY, memory.y},
                       {kBias, const_cast<float*>(memory.bias)},
                       {kSum, memory.sum},
                       {kSquareSum, memory.square_sum},
                       {kScale, const_cast<void*>(memory.scale)},
                       {kShift, const_cast<void*>(memory.shift)},
                       {kNormInput, norm.input},
                       {kNormMean, const_cast<float*>(norm.mean)},
                       {kNormInverse, const_cast<float*>(norm.inverse)},
                       {kNormWeight, const_cast<float*>(norm.weight)},
                       {kNormBias, const_cast<float*>(norm.bias)},
                       {kNormWeightGradient, norm.dweight},
                       {kNormBiasGradient, norm.dbias}};
  for (const Slot& slot : graph_.slots) {
    // The three factors follow each other.
    if (slot.id < kNormFactors || slot.id > kNormFactors + 2 || norm.factors == nullptr) continue;
    const int64_t offset = (slot.id - kNormFactors) * slot.bytes;
    bindings.emplace_back(slot.id, reinterpret_cast<char*>(norm.factors) + offset);
  }
  return Execute(plan_, graph_, bindings, workspace, stream);
}

absl::Status CudnnPlan::Run(const AttentionMemory& memory, void* workspace,
                            cudaStream_t stream) const {
  const Bindings bindings = {{kQuery, memory.x},
                             {kKey, PartOf(memory.x, graph_, 1)},
                             {kValue, PartOf(memory.x, graph_, 2)},
                             {kOutput, memory.y},
                             {kLogsum, memory.logsum},
                             {kOutputGradient, memory.dy},
                             {kQueryGradient, memory.dx},
                             {kKeyGradient, PartOf(memory.dx, graph_, 1)},
                             {kValueGradient, PartOf(memory.dx, graph_, 2)}};
  return Execute(plan_, graph_, bindings, workspace, stream);
}

}  // namespace trainyard::engine::cuda::dnn
