// Lowers convolutions to cuDNN if it has a plan, and otherwise to kernels of our own. Weights are
// packed with padded channels. The gradient of a weight is written directly to the reduction arena
// if nothing is padded, merged or added; otherwise it goes through scratch memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/node_problem.h"
#include "worker/engine/backend/cuda/kernels/convolution.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

// The time between two kernels of a graph.
constexpr double kLaunchMicroseconds = 2;

dnn::ConvProblem ConvProblemOf(Lowering& lowering, const Node& node, const Place& x,
                               const Place& y) {
  dnn::ConvProblem problem = dnn::ProblemOf(lowering.step(), node, lowering.rows(),
                                            lowering.target().type, lowering.target().tf32);
  problem.x_stride = x.stride;
  problem.y_stride = y.stride;
  return problem;
}

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

// The answer of cuDNN to a problem.
struct FoundPlan {
  const dnn::Plan* plan = nullptr;  // null if only our own kernels can do it
  absl::Status refusal = {};        // then this says why
};

absl::StatusOr<FoundPlan> FindConvPlan(Lowering& lowering, const dnn::ConvProblem& problem) {
  const int64_t vector = kVectorBytes / SizeOf(lowering.target().type);
  // Padding would separate the groups.
  const bool has_odd_groups =
      problem.groups > 1 && (problem.channels % problem.groups != 0 ||
                             problem.channels % vector != 0 || problem.out_channels % vector != 0);
  if (has_odd_groups) {
    return FoundPlan{.refusal = absl::NotFoundError(absl::StrCat(
                         "cuDNN takes groups only of channels that are multiples of ", vector))};
  }
  absl::StatusOr<const dnn::Plan*> plan =
      lowering.target().planner->Find(problem, lowering.target().effort);
  if (plan.ok()) return FoundPlan{.plan = *plan};
  if (absl::IsNotFound(plan.status())) return FoundPlan{.refusal = plan.status()};
  return plan.status();
}

// The plan that computes the gradient of a weight, and the type of the gradient that it writes.
struct WeightGradientPlan : FoundPlan {
  Type type = Type::kF32;
};

bool TakesStatistics(Lowering& lowering, const Node& conv) {
  if (lowering.target().fusions == Fusions::kNever || conv.relu || !ConvBiasesOf(conv).empty())
    return false;
  // cuDNN takes the sums over all rows at once, and sums of squares.
  if (lowering.step().max_groups > 1 || lowering.target().merges_ranks) return false;
  for (const Node& node : lowering.step().graph.nodes) {
    if (node.op == OpKind::kBatchNorm && node.norm().batch_statistics &&
        node.inputs[0] == conv.outputs[0]) {
      return true;
    }
  }
  return false;
}

// Returns true if the fused plan saves time. Without it, the statistics cost a pass over the
// output, at the speed at which the plain plan moves its tensors at best.
bool SavesTime(Lowering& lowering, const dnn::Plan& fused, const dnn::Plan& plain, ValueId output) {
  const double of_fused = fused.facts().microseconds;
  const double of_plain = plain.facts().microseconds;
  if (lowering.target().fusions == Fusions::kAlways) return true;
  if (of_fused <= 0 || of_plain <= 0) return false;
  const double bytes =
      static_cast<double>(lowering.Pixels(output) * lowering.PlaceOf(output).stride *
                          SizeOf(lowering.PlaceOf(output).type));
  return of_fused <
         of_plain + kLaunchMicroseconds + bytes / lowering.target().bytes_per_microsecond;
}

// Returns null if the convolution should leave the statistics to batch norm.
absl::StatusOr<const dnn::Plan*> FindPlanWithStatistics(Lowering& lowering,
                                                        dnn::ConvProblem problem, ValueId output) {
  TY_ASSIGN_OR_RETURN(const FoundPlan plain, FindConvPlan(lowering, problem));
  // cuDNN compiles these plans, which is in vain where no times are known to compare.
  const bool has_no_times = plain.plan != nullptr && plain.plan->facts().microseconds <= 0;
  if (has_no_times && lowering.target().fusions != Fusions::kAlways) return nullptr;
  problem.statistics = true;
  TY_ASSIGN_OR_RETURN(const FoundPlan fused, FindConvPlan(lowering, problem));
  if (fused.plan == nullptr || plain.plan == nullptr) return fused.plan;
  return SavesTime(lowering, *fused.plan, *plain.plan, output) ? fused.plan : nullptr;
}

// Takes f32 if cuDNN is as fast with it, since that saves a conversion and a rounding.
absl::StatusOr<WeightGradientPlan> FindWeightGradientPlan(Lowering& lowering,
                                                          dnn::ConvProblem problem) {
  TY_ASSIGN_OR_RETURN(FoundPlan plain, FindConvPlan(lowering, problem));
  if (lowering.target().type == Type::kF32 || plain.plan == nullptr) {
    return WeightGradientPlan{std::move(plain), Type::kF32};
  }
  const double of_plain = plain.plan->facts().microseconds;
  if (of_plain <= 0) return WeightGradientPlan{std::move(plain), lowering.target().type};
  problem.f32_gradient = true;
  TY_ASSIGN_OR_RETURN(FoundPlan exact, FindConvPlan(lowering, problem));
  const double of_exact = exact.plan == nullptr ? 0 : exact.plan->facts().microseconds;
  if (of_exact > 0 && of_exact <= of_plain + kLaunchMicroseconds) {
    return WeightGradientPlan{std::move(exact), Type::kF32};
  }
  return WeightGradientPlan{std::move(plain), lowering.target().type};
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
  dnn::ConvProblem problem = ConvProblemOf(lowering, node, x, y);

  const dnn::Plan* plan = nullptr;
  BufferId sums = kNoBuffer;
  if (TakesStatistics(lowering, node)) {
    TY_ASSIGN_OR_RETURN(plan, FindPlanWithStatistics(lowering, problem, output));
    if (plan != nullptr) {
      sums = lowering.AddScratch(2 * problem.out_channels * SizeOf(Type::kF32));
      lowering.convolution_sums[output] = sums;
    }
  }
  if (plan == nullptr) {
    TY_ASSIGN_OR_RETURN(const FoundPlan found, FindConvPlan(lowering, problem));
    plan = found.plan;
    if (plan == nullptr) lowering.FallBack(node, found.refusal);
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
  lowering.Emit(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        dnn::ConvMemory memory{
            .x = program->At(x).data, .weight = weight, .y = program->At(y).data, .bias = bias};
        if (sums != kNoBuffer) {
          memory.sum = program->ptr<float>(sums);
          memory.square_sum = memory.sum + square_sums;
        }
        return plan->Run(memory, program->ptr<void>(workspace), how.stream);
      },
      {x.buffer, y.buffer, workspace, sums});
  return absl::OkStatus();
}

absl::Status LowerConv2dInputGradient(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const WeightCopy& copy = lowering.weights().copy(ConvWeightsOf(node));
  const Place dx = lowering.MakeOutput(node);
  TY_ASSIGN_OR_RETURN(const FoundPlan found,
                      FindConvPlan(lowering, ConvProblemOf(lowering, node, dx, dy)));
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
  lowering.Emit(node,
                [=, program = &lowering.program()](const Enqueue& how) {
                  return plan->Run(
                      {.x = program->At(dx).data, .weight = weight, .y = program->At(dy).data},
                      program->ptr<void>(workspace), how.stream);
                },
                {dy.buffer, dx.buffer, workspace});
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
  TY_ASSIGN_OR_RETURN(const WeightGradientPlan chosen,
                      FindWeightGradientPlan(lowering, ConvProblemOf(lowering, node, x, dy)));
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
          TY_RETURN_IF_ERROR(
              plan->Run({.x = program->At(x).data, .weight = computed, .y = program->At(dy).data},
                        program->ptr_or_null<void>(workspace), how.stream));
        }
        if (has_biases) return absl::OkStatus();
        for (const UnpackedLater& member : unpacked) {
          UnpackGradient(member.gradient(how), how.stream);
        }
        return absl::OkStatus();
      },
      {dy.buffer, x.buffer, scratch, workspace}, traffic);
  int64_t first_channel = 0;
  for (size_t i = members; i < node.outputs.size(); ++i) {
    lowering.EmitBiasGradient(node, dy_id, first_channel, node.outputs[i], unpacked[i - members]);
    first_channel += lowering.SumsCount(node.outputs[i]);
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
