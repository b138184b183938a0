// Lowers convolutions to cuDNN if it has a plan, and otherwise to kernels of our own. Weights are
// packed with padded channels. The gradient of a weight is written directly to the reduction arena
// if nothing is padded, merged or added; otherwise it goes through scratch memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/conv_plans.h"
#include "worker/engine/backend/cuda/kernels/convolution.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

ConvShape ConvShapeOf(Lowering& lowering, const ConvAttributes& conv, ValueId x, ValueId y,
                      int64_t weight_stride) {
  return {.in = lowering.Image(x),
          .out = lowering.Image(y),
          .kernel = conv.kernel,
          .stride = conv.stride,
          .padding = conv.padding,
          .dilation = conv.dilation,
          .groups = conv.groups,
          .weight_stride = weight_stride};
}

// Returns where the scale and shift of a convolution's input lie that it normalises itself.
Lowering::UnwrittenNorm NormOf(const Lowering& lowering, ValueId input) {
  const auto found = lowering.unwritten_norms.find(input);
  return found == lowering.unwritten_norms.end() ? Lowering::UnwrittenNorm() : found->second;
}

// Kernels of our own read what a batch norm has written, so if it wrote nothing, the plan with
// which that was decided must be there again.
absl::Status CheckFallBack(const dnn::ConvProblem& problem, const FoundPlan& found) {
  if (found.plan != nullptr || !problem.normalises) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuDNN refuses what it took before: ", problem.Key(),
                                          ": ", found.refusal.message()));
}

// The memory of a batch norm whose gradient a convolution sums up. No buffer is there if it does
// not.
struct NormSums {
  Place input;
  BufferId mean = kNoBuffer, variance = kNoBuffer;
  BufferId operands = kNoBuffer;  // [4, stride], then three factors of which none is used
  BufferId sums = kNoBuffer;      // [2, stride]
  int64_t stride = 0;
  NormGradient norm = {};
  Traffic traffic = {};
};

NormSums AddNormSums(Lowering& lowering, const Node& gradient) {
  const ValueId input = gradient.inputs[1];
  NormSums sums;
  sums.input = lowering.PlaceOf(input);
  sums.mean = lowering.PlainBufferOf(gradient.inputs[3]);
  sums.variance = lowering.PlainBufferOf(gradient.inputs[4]);
  sums.norm.channels = lowering.Channels(input);
  sums.norm.weight = lowering.Parameter(gradient.inputs[2]);
  sums.norm.bias = lowering.Parameter(gradient.inputs[static_cast<size_t>(gradient.norm().bias)]);
  sums.norm.eps = static_cast<float>(gradient.norm().eps);
  sums.stride = NormSumsStride(sums.norm.channels);
  sums.operands = lowering.AddScratch(7 * sums.stride * SizeOf(Type::kF32));
  sums.sums = lowering.AddScratch(2 * sums.stride * SizeOf(Type::kF32));
  sums.traffic = {.kernels = 2, .bytes = lowering.Bytes(input)};
  lowering.norm_sums[gradient.inputs[0]] = sums.sums;
  return sums;
}

// Writes what cuDNN reads of the norm, if there is one, and returns where everything lies.
dnn::NormMemory PrepareNormSums(const Program& program, const NormSums& sums, cudaStream_t stream) {
  if (sums.sums == kNoBuffer) return {};
  NormGradient norm = sums.norm;
  norm.mean = program.ptr<float>(sums.mean);
  norm.variance = program.ptr<float>(sums.variance);
  auto* const operands = program.ptr<float>(sums.operands);
  NormPackOperands(norm, operands, stream);
  auto* const dbias = program.ptr<float>(sums.sums);
  return {.input = program.At(sums.input).data,
          .mean = operands,
          .inverse = operands + sums.stride,
          .weight = operands + 2 * sums.stride,
          .bias = operands + 3 * sums.stride,
          .dweight = dbias + sums.stride,
          .dbias = dbias,
          .factors = operands + 4 * sums.stride};
}

// Returns where the gradients of weights are unpacked from, one after the other in `packed`. Plain
// ones are only packed if they are added to earlier sums.
std::vector<UnpackedLater> UnpackedOf(Lowering& lowering, const std::vector<ValueId>& gradients,
                                      const WeightCopy& copy, Type type, BufferId packed,
                                      bool is_plain) {
  std::vector<UnpackedLater> unpacked;
  int64_t offset = 0;
  for (const ValueId id : gradients) {
    const PackedGradient gradient = {.type = type,
                                     .inner = copy.inner,
                                     .stride = copy.stride,
                                     .count = lowering.SumsCount(id),
                                     .gradient = lowering.Sums(id)};
    const auto at = [=, program = &lowering.program()](const Enqueue& how) {
      if (is_plain && !how.adds) return PackedGradient();
      PackedGradient found = gradient;
      found.packed = program->ptr<std::byte>(packed) + offset;
      found.adds = how.adds;
      return found;
    };
    const int64_t bytes = gradient.count / copy.inner * copy.stride * SizeOf(type);
    unpacked.push_back({packed, is_plain ? 0 : 2 * bytes, at});
    offset += bytes;
  }
  return unpacked;
}

}  // namespace

absl::Status LowerConv2d(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = lowering.PlaceOf(node.inputs[0]);
  const WeightCopy& copy = lowering.weights().copy(ConvWeightsOf(node));
  const std::vector<ValueId> biases = ConvBiasesOf(node);
  const auto* bias =
      biases.empty() ? nullptr : static_cast<const float*>(lowering.weights().copy(biases).data);
  const Place y = lowering.MakeOutput(node);
  const bool relu = node.relu;
  const dnn::ConvProblem problem = ConvProblemOf(lowering, node, x, y);

  TY_ASSIGN_OR_RETURN(const ForwardPlan found, FindForwardPlan(lowering, node, problem));
  TY_RETURN_IF_ERROR(CheckFallBack(problem, found));
  const dnn::Plan* const plan = found.plan;
  if (plan == nullptr) lowering.FallBack(node, found.refusal);
  BufferId sums = kNoBuffer;
  if (found.has_statistics) {
    sums = lowering.AddScratch(2 * problem.out_channels * SizeOf(Type::kF32));
    lowering.convolution_sums[output] = sums;
  }
  const int64_t square_sums = problem.out_channels;
  void* const weight = copy.data;
  if (plan == nullptr) {
    const ConvShape shape = ConvShapeOf(lowering, node.conv(), node.inputs[0], output, copy.stride);
    const bool clears = lowering.ClearsPadding(y, output);
    lowering.EmitKernel(node,
                        [=, program = &lowering.program()](const Enqueue& how) {
                          ConvForward(shape, program->At(x), weight, bias, relu, program->At(y),
                                      clears, how.stream);
                        },
                        {x.buffer, y.buffer});
    return absl::OkStatus();
  }
  const BufferId workspace = lowering.AddScratch(plan->facts().workspace_bytes);
  const Lowering::UnwrittenNorm norm = NormOf(lowering, node.inputs[0]);
  lowering.Emit(node,
                [=, program = &lowering.program()](const Enqueue& how) {
                  dnn::ConvMemory memory{.x = program->At(x).data,
                                         .weight = weight,
                                         .y = program->At(y).data,
                                         .bias = bias,
                                         .scale = program->At(norm.scale).data,
                                         .shift = program->At(norm.shift).data};
                  if (sums != kNoBuffer) {
                    memory.sum = program->ptr<float>(sums);
                    memory.square_sum = memory.sum + square_sums;
                  }
                  return plan->Run(memory, program->ptr<void>(workspace), how.stream);
                },
                {x.buffer, y.buffer, workspace, sums, norm.scale.buffer, norm.shift.buffer});
  return absl::OkStatus();
}

absl::Status LowerConv2dInputGradient(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const WeightCopy& copy = lowering.weights().copy(ConvWeightsOf(node));
  const Place dx = lowering.MakeOutput(node);
  TY_ASSIGN_OR_RETURN(const InputGradientPlan found,
                      FindInputGradientPlan(lowering, node, ConvProblemOf(lowering, node, dx, dy)));
  const dnn::Plan* const plan = found.plan;
  void* const weight = copy.data;
  if (plan == nullptr) {
    lowering.FallBack(node, found.refusal);
    const ConvShape shape = ConvShapeOf(lowering, node.conv(), output, node.inputs[0], copy.stride);
    const bool clears = lowering.ClearsPadding(dx, output);
    lowering.EmitKernel(node,
                        [=, program = &lowering.program()](const Enqueue& how) {
                          ConvInputGradient(shape, program->At(dy), weight, program->At(dx), clears,
                                            how.stream);
                        },
                        {dy.buffer, dx.buffer});
    return absl::OkStatus();
  }
  const BufferId workspace = lowering.AddScratch(plan->facts().workspace_bytes);
  const NormSums sums =
      found.has_norm_sums ? AddNormSums(lowering, *NormGradientOf(lowering, node)) : NormSums();
  lowering.Emit(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        const dnn::ConvMemory memory = {.x = program->At(dx).data,
                                        .weight = weight,
                                        .y = program->At(dy).data,
                                        .norm = PrepareNormSums(*program, sums, how.stream)};
        return plan->Run(memory, program->ptr<void>(workspace), how.stream);
      },
      {dy.buffer, dx.buffer, workspace, sums.input.buffer, sums.mean, sums.variance, sums.operands,
       sums.sums},
      sums.traffic);
  return absl::OkStatus();
}

absl::Status LowerConv2dParameterGradient(Lowering& lowering, const Node& node) {
  const ValueId dy_id = node.inputs[0];
  const ValueId x_id = node.inputs[1];
  const Place dy = lowering.PlaceOf(dy_id);
  const Place x = lowering.PlaceOf(x_id);
  const auto members = static_cast<size_t>(node.conv().weights);
  const std::vector<ValueId> gradients(node.outputs.begin(),
                                       node.outputs.begin() + static_cast<int64_t>(members));
  std::vector<ValueId> weights;
  weights.reserve(members);
  for (const ValueId gradient : gradients) weights.push_back(lowering.value(gradient).primal);
  const WeightCopy& copy = lowering.weights().copy(weights);
  const dnn::ConvProblem problem = ConvProblemOf(lowering, node, x, dy);
  TY_ASSIGN_OR_RETURN(const WeightGradientPlan chosen, FindWeightGradientPlan(lowering, problem));
  TY_RETURN_IF_ERROR(CheckFallBack(problem, chosen));
  const Lowering::UnwrittenNorm norm = NormOf(lowering, x_id);
  const dnn::Plan* const plan = chosen.plan;
  const Type type = chosen.type;
  if (plan == nullptr) lowering.FallBack(node, chosen.refusal);

  // The computed gradient has rows like those of the packed weight.
  const int64_t filter = node.conv().kernel * node.conv().kernel;
  const int64_t out_channels =
      plan == nullptr || node.conv().groups > 1
          ? lowering.Channels(dy_id)
          : PaddedChannels(lowering.Channels(dy_id), lowering.target().type);
  const bool is_plain = members == 1 && copy.stride == copy.inner &&
                        out_channels == lowering.Channels(dy_id) && type == Type::kF32;
  float* const sums = lowering.Sums(gradients[0]);
  // It is written to the arena if that may be overwritten, and to scratch memory first otherwise.
  const BufferId scratch = lowering.AddScratch(out_channels * filter * copy.stride * SizeOf(type));
  const ConvShape shape = ConvShapeOf(lowering, node.conv(), x_id, dy_id, copy.stride);
  const BufferId workspace =
      plan == nullptr ? kNoBuffer : lowering.AddScratch(plan->facts().workspace_bytes);
  // The launches that sum the biases' gradients also unpack those of the weights.
  const bool has_biases = node.outputs.size() > members;
  const std::vector<UnpackedLater> unpacked =
      UnpackedOf(lowering, gradients, copy, type, scratch, is_plain);
  Traffic traffic;
  if (!is_plain && !has_biases) {
    traffic.kernels += static_cast<int64_t>(members);
    traffic.more_bytes =
        2 * static_cast<double>(out_channels * filter * copy.stride * SizeOf(type));
  }
  lowering.Emit(
      node,
      [=, program = &lowering.program()](const Enqueue& how) -> absl::Status {
        const bool is_direct = is_plain && !how.adds;
        void* const computed = is_direct ? sums : program->ptr<void>(scratch);
        if (plan == nullptr) {
          ConvWeightGradient(shape, program->At(dy), program->At(x), static_cast<float*>(computed),
                             false, how.stream);
        } else {
          TY_RETURN_IF_ERROR(plan->Run({.x = program->At(x).data,
                                        .weight = computed,
                                        .y = program->At(dy).data,
                                        .scale = program->At(norm.scale).data,
                                        .shift = program->At(norm.shift).data},
                                       program->ptr_or_null<void>(workspace), how.stream));
        }
        if (has_biases) return absl::OkStatus();
        for (const UnpackedLater& member : unpacked) {
          UnpackGradient(member.gradient(how), how.stream);
        }
        return absl::OkStatus();
      },
      {dy.buffer, x.buffer, scratch, workspace, norm.scale.buffer, norm.shift.buffer}, traffic);
  int64_t first_channel = 0;
  for (size_t i = members; i < node.outputs.size(); ++i) {
    lowering.EmitBiasGradient(node, dy_id, first_channel, node.outputs[i], unpacked[i - members]);
    first_channel += lowering.SumsCount(node.outputs[i]);
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
