// Convolutions: by cuDNN where it has a plan, else by kernels of our own. Weights are packed with
// padded channels; a gradient of a weight goes straight into the reduction arena where nothing is
// padded, merged or added, else through scratch memory.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/compiler.h"
#include "worker/engine/backend/cuda/dnn/node_problem.h"
#include "worker/engine/backend/cuda/runtime/runtime.h"

namespace trainyard::engine::cuda {
namespace {

// Between two kernels of a graph.
constexpr double kLaunchMicroseconds = 2;

}  // namespace

dnn::ConvProblem Compiler::ConvProblemOf(const Node& node, const Place& x, const Place& y) const {
  dnn::ConvProblem problem = dnn::ProblemOf(step_, node, rows_, target_.type, target_.tf32);
  problem.x_stride = x.stride;
  problem.y_stride = y.stride;
  return problem;
}

ConvShape Compiler::ConvShapeOf(const ConvAttributes& conv, ValueId x, ValueId y,
                                int64_t weight_stride) const {
  return {.in = Image(x),
          .out = Image(y),
          .kernel = conv.kernel,
          .stride = conv.stride,
          .padding = conv.padding,
          .dilation = conv.dilation,
          .groups = conv.groups,
          .weight_stride = weight_stride};
}

absl::StatusOr<const dnn::Plan*> Compiler::FindConvPlan(dnn::ConvProblem problem) const {
  const int64_t vector = kVectorBytes / SizeOf(target_.type);
  // Padding would part the groups.
  const bool has_odd_groups =
      problem.groups > 1 && (problem.channels % problem.groups != 0 ||
                             problem.channels % vector != 0 || problem.out_channels % vector != 0);
  if (has_odd_groups) return nullptr;
  const absl::StatusOr<const dnn::Plan*> plan = target_.planner->Find(problem);
  if (absl::IsNotFound(plan.status())) return nullptr;
  return plan;
}

bool Compiler::TakesStatistics(const Node& conv) const {
  if (target_.fusions == Fusions::kNever || conv.relu || !ConvBiasesOf(conv).empty()) return false;
  // It sums over all rows at once, in squares.
  if (step_.max_groups > 1 || target_.merges_ranks) return false;
  for (const Node& node : step_.graph.nodes) {
    if (node.op == OpKind::kBatchNorm && node.norm().batch_statistics &&
        node.inputs[0] == conv.outputs[0]) {
      return true;
    }
  }
  return false;
}

absl::Status Compiler::LowerConv(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place x = PlaceOf(node.inputs[0]);
  const WeightCopy& copy = weights_.copy(ConvWeightsOf(node));
  const std::vector<ValueId> biases = ConvBiasesOf(node);
  const auto* bias =
      biases.empty() ? nullptr : static_cast<const float*>(weights_.copy(biases).data);
  const Place y = MakeOutput(node);
  const bool relu = node.relu;
  dnn::ConvProblem problem = ConvProblemOf(node, x, y);

  const dnn::Plan* plan = nullptr;
  BufferId sums = kNoBuffer;
  if (TakesStatistics(node)) {
    dnn::ConvProblem fused = problem;
    fused.statistics = true;
    TY_ASSIGN_OR_RETURN(plan, FindConvPlan(fused));
    TY_ASSIGN_OR_RETURN(const dnn::Plan* const plain, FindConvPlan(problem));
    if (plan != nullptr && plain != nullptr && !SavesTime(*plan, *plain, output)) plan = nullptr;
    if (plan != nullptr) {
      sums = AddScratch(2 * problem.out_channels * SizeOf(Type::kF32));
      statistics_[output] = sums;
    }
  }
  if (plan == nullptr) {
    TY_ASSIGN_OR_RETURN(plan, FindConvPlan(problem));
  }
  const int64_t square_sums = problem.out_channels;
  void* const weight = copy.data;
  if (plan == nullptr) {
    const ConvShape shape = ConvShapeOf(node.conv(), node.inputs[0], output, copy.stride);
    const bool clears = ClearsPadding(y, output);
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 ConvForward(shape, program->At(x), weight, bias, relu, program->At(y), clears,
                             how.stream);
               },
               {x.buffer, y.buffer});
    return absl::OkStatus();
  }
  const BufferId workspace = AddScratch(plan->facts().workspace_bytes);
  Emit(node,
       [=, program = &program_](const Enqueue& how) {
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

// What the statistics cost by themselves: a pass over the output, at the speed at which the plain
// plan moves its tensors at best.
bool Compiler::SavesTime(const dnn::Plan& fused, const dnn::Plan& plain, ValueId output) const {
  const double of_fused = fused.facts().microseconds;
  const double of_plain = plain.facts().microseconds;
  if (target_.fusions == Fusions::kAlways) return true;
  if (of_fused <= 0 || of_plain <= 0) return false;
  const double bytes =
      static_cast<double>(Pixels(output) * PlaceOf(output).stride * SizeOf(PlaceOf(output).type));
  return of_fused < of_plain + kLaunchMicroseconds + bytes / target_.bytes_per_microsecond;
}

absl::Status Compiler::LowerConvInputGradient(const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = PlaceOf(node.inputs[0]);
  const WeightCopy& copy = weights_.copy(ConvWeightsOf(node));
  const Place dx = MakeOutput(node);
  TY_ASSIGN_OR_RETURN(const dnn::Plan* const plan, FindConvPlan(ConvProblemOf(node, dx, dy)));
  void* const weight = copy.data;
  if (plan == nullptr) {
    const ConvShape shape = ConvShapeOf(node.conv(), output, node.inputs[0], copy.stride);
    const bool clears = ClearsPadding(dx, output);
    EmitKernel(node,
               [=, program = &program_](const Enqueue& how) {
                 ConvInputGradient(shape, program->At(dy), weight, program->At(dx), clears,
                                   how.stream);
               },
               {dy.buffer, dx.buffer});
    return absl::OkStatus();
  }
  const BufferId workspace = AddScratch(plan->facts().workspace_bytes);
  Emit(node,
       [=, program = &program_](const Enqueue& how) {
         return plan->Run({.x = program->At(dx).data, .weight = weight, .y = program->At(dy).data},
                          program->ptr<void>(workspace), how.stream);
       },
       {dy.buffer, dx.buffer, workspace});
  return absl::OkStatus();
}

// In f32 where cuDNN does that as fast: it saves a conversion, and a rounding.
absl::StatusOr<Compiler::WeightGradientPlan> Compiler::FindWeightGradientPlan(
    dnn::ConvProblem problem) const {
  WeightGradientPlan chosen;
  TY_ASSIGN_OR_RETURN(chosen.plan, FindConvPlan(problem));
  if (target_.type == Type::kF32 || chosen.plan == nullptr) return chosen;
  chosen.type = target_.type;
  problem.f32_gradient = true;
  TY_ASSIGN_OR_RETURN(const dnn::Plan* const exact, FindConvPlan(problem));
  if (exact == nullptr) return chosen;
  const double of_exact = exact->facts().microseconds;
  const double of_plain = chosen.plan->facts().microseconds;
  if (of_exact > 0 && of_exact <= of_plain + kLaunchMicroseconds) chosen = {exact, Type::kF32};
  return chosen;
}

absl::Status Compiler::LowerConvParameterGradient(const Node& node) {
  const ValueId dy_id = node.inputs[0];
  const ValueId x_id = node.inputs[1];
  const Place dy = PlaceOf(dy_id);
  const Place x = PlaceOf(x_id);
  const auto members = static_cast<size_t>(node.conv().weights);
  const std::vector<ValueId> gradients(node.outputs.begin(),
                                       node.outputs.begin() + static_cast<int64_t>(members));
  std::vector<ValueId> weights;
  for (const ValueId gradient : gradients) weights.push_back(value(gradient).primal);
  const WeightCopy& copy = weights_.copy(weights);
  TY_ASSIGN_OR_RETURN(const WeightGradientPlan chosen,
                      FindWeightGradientPlan(ConvProblemOf(node, x, dy)));
  const dnn::Plan* const plan = chosen.plan;
  const Type type = chosen.type;

  // As the computed gradient lies: rows like those of the packed weight.
  const int64_t filter = node.conv().kernel * node.conv().kernel;
  const int64_t out_channels = plan == nullptr || node.conv().groups > 1
                                   ? Channels(dy_id)
                                   : PaddedChannels(Channels(dy_id), target_.type);
  const bool is_plain = members == 1 && copy.stride == copy.inner &&
                        out_channels == Channels(dy_id) && type == Type::kF32;
  float* const sums = Sums(gradients[0]);
  const bool adds = node.adds;
  // Into the arena where it may overwrite, else into scratch memory first.
  const BufferId scratch = AddScratch(out_channels * filter * copy.stride * SizeOf(type));
  const ConvShape shape = ConvShapeOf(node.conv(), x_id, dy_id, copy.stride);
  const BufferId workspace =
      plan == nullptr ? kNoBuffer : AddScratch(plan->facts().workspace_bytes);
  const Unpacking unpacking = UnpackingOf(gradients, copy);
  Emit(node,
       [=, program = &program_](const Enqueue& how) -> absl::Status {
         const bool is_direct = is_plain && !how.adds && !adds;
         void* const computed = is_direct ? sums : program->ptr<void>(scratch);
         if (plan == nullptr) {
           ConvWeightGradient(shape, program->At(dy), program->At(x), static_cast<float*>(computed),
                              false, how.stream);
         } else {
           TY_RETURN_IF_ERROR(
               plan->Run({.x = program->At(x).data, .weight = computed, .y = program->At(dy).data},
                         program->ptr_or_null<void>(workspace), how.stream));
         }
         if (!is_direct) unpacking.Enqueue(computed, type, how.adds || adds, how.stream);
         return absl::OkStatus();
       },
       {dy.buffer, x.buffer, scratch, workspace});
  int64_t first_channel = 0;
  for (size_t i = members; i < node.outputs.size(); ++i) {
    EmitBiasGradient(node, dy_id, first_channel, node.outputs[i]);
    first_channel += SumsCount(node.outputs[i]);
  }
  return absl::OkStatus();
}

Compiler::Unpacking Compiler::UnpackingOf(const std::vector<ValueId>& gradients,
                                          const WeightCopy& copy) const {
  Unpacking unpacking{.inner = copy.inner, .stride = copy.stride, .targets = {}};
  for (const ValueId gradient : gradients) {
    unpacking.targets.emplace_back(Sums(gradient), SumsCount(gradient));
  }
  return unpacking;
}

void Compiler::Unpacking::Enqueue(const void* computed, Type type, bool adds,
                                  cudaStream_t stream) const {
  const auto* at = static_cast<const std::byte*>(computed);
  for (const auto& [sums, count] : targets) {
    UnpackGradient(at, type, inner, stride, count, adds, sums, stream);
    at += count / inner * stride * SizeOf(type);
  }
}

// Of channels [first_channel, ...) of dy.
void Compiler::EmitBiasGradient(const Node& node, ValueId dy_id, int64_t first_channel,
                                ValueId dbias) {
  Place dy = PlaceOf(dy_id);
  dy.offset += first_channel;
  const int64_t pixels = Pixels(dy_id);
  const int64_t channels = SumsCount(dbias);
  float* const sums = Sums(dbias);
  const bool adds = node.adds;
  const BufferId workspace = AddScratch(ColumnSumWorkspace(pixels, channels));
  EmitKernel(node,
             [=, program = &program_](const Enqueue& how) {
               ColumnSum(program->At(dy), pixels, channels, how.adds || adds, sums,
                         program->ptr<void>(workspace), how.stream);
             },
             {dy.buffer, workspace});
}

}  // namespace trainyard::engine::cuda
