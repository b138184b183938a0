// Asks the planner for convolutions with and without what could be fused into them, and adds up the
// times.
#include "worker/engine/backend/cuda/conv_plans.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/dnn/node_problem.h"

namespace trainyard::engine::cuda {
namespace {

// The time between two kernels of a graph.
constexpr double kLaunchMicroseconds = 2;

// Returns the time that a kernel of our own takes at best which moves so many bytes.
double PassMicroseconds(const Lowering& lowering, double bytes) {
  return kLaunchMicroseconds + bytes / lowering.target().bytes_per_microsecond;
}

// Returns the bytes of an image with its padding.
double ImageBytes(const Lowering& lowering, ValueId id) {
  const Type type = lowering.target().type;
  return static_cast<double>(lowering.Pixels(id) * PaddedChannels(lowering.Channels(id), type) *
                             SizeOf(type));
}

// Returns true if plans may be taken whose time is not known to be less.
bool TakesAlways(const Lowering& lowering) {
  return lowering.target().fusions == Fusions::kAlways;
}

bool HasTime(const FoundPlan& found) {
  return found.plan != nullptr && found.plan->facts().microseconds > 0;
}

// cuDNN sums up all rows at once.
bool HasOneGroup(const Lowering& lowering) {
  return lowering.step().max_groups == 1 && !lowering.target().merges_ranks;
}

// Returns true if a batch norm wants the sums of the convolution's output.
bool WantsStatistics(const Lowering& lowering, const Node& conv) {
  if (lowering.target().fusions == Fusions::kNever || conv.relu || !ConvBiasesOf(conv).empty() ||
      !HasOneGroup(lowering)) {
    return false;
  }
  const std::vector<Node>& nodes = lowering.step().graph.nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.op == OpKind::kBatchNorm && node.norm().batch_statistics &&
           node.inputs[0] == conv.outputs[0];
  });
}

// Returns the time of a plan and of the pass over its output that takes the statistics if it does
// not.
double Microseconds(const Lowering& lowering, const Node& conv, const ForwardPlan& found) {
  const bool needs_pass = !found.has_statistics && WantsStatistics(lowering, conv);
  return found.plan->facts().microseconds +
         (needs_pass ? PassMicroseconds(lowering, ImageBytes(lowering, conv.outputs[0])) : 0);
}

// Returns the time of a plan and of the launch that converts its gradient.
double Microseconds(const WeightGradientPlan& found) {
  return found.plan->facts().microseconds + (found.type == Type::kF32 ? 0 : kLaunchMicroseconds);
}

// Returns the time in which a norm reads its input and writes its output, when it has the
// statistics. If it takes those itself, of few pixels, both are one launch, which finds the input
// in the cache.
double ApplyMicroseconds(const Lowering& lowering, const Node& norm) {
  const double input = ImageBytes(lowering, norm.inputs[0]);
  const double output = ImageBytes(lowering, norm.outputs[0]);
  const bool is_launch = lowering.convolution_sums.contains(norm.inputs[0]) ||
                         NormKernels(lowering.Pixels(norm.inputs[0])) > 1;
  return is_launch ? PassMicroseconds(lowering, input + output)
                   : output / lowering.target().bytes_per_microsecond;
}

// The times of what reads the output of a batch norm, with and without the norm in it.
struct ReaderTimes {
  bool can_normalise = false;
  double separate = 0;
  double fused = 0;
};

// Asks for the two plans of a reader. `find(problem)` returns a plan, and `time(plan)` its time.
template <class Find, class Time>
absl::StatusOr<ReaderTimes> CompareReader(const Lowering& lowering, dnn::ConvProblem problem,
                                          const Find& find, const Time& time) {
  TY_ASSIGN_OR_RETURN(const auto separate, find(problem));
  // cuDNN compiles the other plan, which is in vain where no times are known to compare.
  const bool is_comparable =
      separate.plan != nullptr && (TakesAlways(lowering) || HasTime(separate));
  if (!is_comparable) return ReaderTimes();
  problem.normalises = true;
  TY_ASSIGN_OR_RETURN(const auto fused, find(problem));
  if (fused.plan == nullptr || !(TakesAlways(lowering) || HasTime(fused))) return ReaderTimes();
  return ReaderTimes{true, time(separate), time(fused)};
}

absl::StatusOr<ReaderTimes> TimesOf(Lowering& lowering, const Node& reader, const Place& x) {
  const bool is_forward = reader.op == OpKind::kConv2d;
  const ValueId y = is_forward ? reader.outputs[0] : reader.inputs[0];
  const int64_t stride = PaddedChannels(lowering.Channels(y), lowering.target().type);
  const dnn::ConvProblem problem =
      ConvProblemOf(lowering, reader, x, {.stride = stride, .type = lowering.target().type});
  if (is_forward) {
    return CompareReader(
        lowering, problem,
        [&](const dnn::ConvProblem& p) { return FindForwardPlan(lowering, reader, p); },
        [&](const ForwardPlan& found) { return Microseconds(lowering, reader, found); });
  }
  return CompareReader(
      lowering, problem,
      [&](const dnn::ConvProblem& p) { return FindWeightGradientPlan(lowering, p); },
      [](const WeightGradientPlan& found) { return Microseconds(found); });
}

// Returns true if the node reads y as the input of a convolution, for which cuDNN may have a plan
// that normalises it.
bool IsConvolutionOf(const Lowering& lowering, const Node& node, ValueId y) {
  const bool is_forward = node.op == OpKind::kConv2d && !node.relu && ConvBiasesOf(node).empty();
  if (!is_forward && node.op != OpKind::kConv2dParameterGradient) return false;
  const ValueId input = node.inputs[is_forward ? 0 : 1];
  const ValueId other = is_forward ? node.outputs[0] : node.inputs[0];
  return input == y && other != y && !lowering.IsPart(other) && node.conv().groups == 1;
}

bool Reads(const Node& node, ValueId id) {
  return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
}

// Returns the nodes that read the output of a batch_norm, the last one first, or none if one of
// them could not normalise it.
std::vector<const Node*> ReadersThatCouldNormalise(const Lowering& lowering, const Node& norm) {
  const StepGraph& step = lowering.step();
  const ValueId y = norm.outputs[0];
  const bool has_mask = norm.outputs.size() > 3 && norm.outputs[3] != kNoValue;
  const bool is_kept = std::find(step.kept.begin(), step.kept.end(), y) != step.kept.end();
  if (lowering.target().fusions == Fusions::kNever || lowering.target().type == Type::kF32 ||
      !HasOneGroup(lowering) || !norm.relu || norm.norm().residual > 0 || has_mask || is_kept ||
      lowering.IsPart(y)) {
    return {};
  }
  std::vector<const Node*> readers;
  bool is_input_read_later = false;
  for (auto node = step.graph.nodes.rbegin(); node != step.graph.nodes.rend(); ++node) {
    // When the norm's input is not read any more, it may be overwritten.
    is_input_read_later = is_input_read_later || Reads(*node, norm.inputs[0]);
    if (!Reads(*node, y)) continue;
    if (!is_input_read_later || !IsConvolutionOf(lowering, *node, y)) return {};
    readers.push_back(&*node);
  }
  return readers;
}

}  // namespace

dnn::ConvProblem ConvProblemOf(Lowering& lowering, const Node& node, const Place& x,
                               const Place& y) {
  dnn::ConvProblem problem = dnn::ProblemOf(lowering.step(), node, lowering.rows(),
                                            lowering.target().type, lowering.target().tf32);
  problem.x_stride = x.stride;
  problem.y_stride = y.stride;
  const bool is_weight_gradient = problem.kind == dnn::ConvProblem::Kind::kWeightGradient;
  problem.normalises = lowering.unwritten_norms.contains(node.inputs[is_weight_gradient ? 1 : 0]);
  return problem;
}

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

absl::StatusOr<ForwardPlan> FindForwardPlan(Lowering& lowering, const Node& conv,
                                            const dnn::ConvProblem& problem) {
  dnn::ConvProblem summing = problem;
  summing.statistics = WantsStatistics(lowering, conv);
  if (summing.statistics && problem.normalises) {
    // An engine that normalises its input can also sum up its output, at no price worth measuring.
    TY_ASSIGN_OR_RETURN(FoundPlan fused, FindConvPlan(lowering, summing));
    if (fused.plan != nullptr) return ForwardPlan{std::move(fused), true};
  }
  TY_ASSIGN_OR_RETURN(FoundPlan found, FindConvPlan(lowering, problem));
  const ForwardPlan plain = {std::move(found), false};
  if (!summing.statistics || problem.normalises) return plain;
  // cuDNN compiles the other plan, which is in vain where no times are known to compare.
  if (plain.plan != nullptr && !HasTime(plain) && !TakesAlways(lowering)) return plain;
  TY_ASSIGN_OR_RETURN(found, FindConvPlan(lowering, summing));
  const ForwardPlan fused = {std::move(found), true};
  if (fused.plan == nullptr) return plain;
  const bool is_taken =
      plain.plan == nullptr || TakesAlways(lowering) ||
      (HasTime(fused) && Microseconds(lowering, conv, fused) < Microseconds(lowering, conv, plain));
  return is_taken ? fused : plain;
}

absl::StatusOr<WeightGradientPlan> FindWeightGradientPlan(Lowering& lowering,
                                                          dnn::ConvProblem problem) {
  TY_ASSIGN_OR_RETURN(FoundPlan found, FindConvPlan(lowering, problem));
  if (lowering.target().type == Type::kF32 || found.plan == nullptr) {
    return WeightGradientPlan{std::move(found), Type::kF32};
  }
  const WeightGradientPlan plain = {std::move(found), lowering.target().type};
  if (!HasTime(plain) || problem.normalises) return plain;
  problem.f32_gradient = true;
  TY_ASSIGN_OR_RETURN(found, FindConvPlan(lowering, problem));
  const WeightGradientPlan exact = {std::move(found), Type::kF32};
  return HasTime(exact) && Microseconds(exact) <= Microseconds(plain) ? exact : plain;
}

const Node* NormGradientOf(const Lowering& lowering, const Node& input_gradient) {
  const StepGraph& step = lowering.step();
  const ValueId gradient = input_gradient.outputs[0];
  if (lowering.target().fusions == Fusions::kNever || lowering.target().type == Type::kF32 ||
      !HasOneGroup(lowering) || lowering.IsPart(gradient) || input_gradient.conv().groups > 1 ||
      gradient == step.input_gradient ||
      std::find(step.kept.begin(), step.kept.end(), gradient) != step.kept.end()) {
    return nullptr;
  }
  const Node* found = nullptr;
  for (const Node& node : step.graph.nodes) {
    if (!Reads(node, gradient)) continue;
    const bool is_only = found == nullptr && node.op == OpKind::kBatchNormGradient &&
                         std::count(node.inputs.begin(), node.inputs.end(), gradient) == 1;
    if (!is_only) return nullptr;
    found = &node;
  }
  if (found == nullptr || found->inputs[0] != gradient) return nullptr;
  const NormAttributes& norm = found->norm();
  // The sign comes from the norm's input, and the gradient from nowhere else.
  const bool is_plain = norm.bias > 0 && norm.mask == 0 && norm.second_gradient == 0 &&
                        found->outputs[0] != kNoValue && found->outputs.size() <= 3;
  return is_plain ? found : nullptr;
}

absl::StatusOr<InputGradientPlan> FindInputGradientPlan(Lowering& lowering, const Node& node,
                                                        dnn::ConvProblem problem) {
  TY_ASSIGN_OR_RETURN(FoundPlan found, FindConvPlan(lowering, problem));
  InputGradientPlan plain = {std::move(found), false};
  const Node* const norm = NormGradientOf(lowering, node);
  if (norm == nullptr || lowering.PlaceOf(norm->inputs[1]).stride != problem.x_stride) return plain;
  // cuDNN compiles the other plan, which is in vain where no times are known to compare.
  if (plain.plan == nullptr || (!HasTime(plain) && !TakesAlways(lowering))) return plain;
  problem.norm_sums = true;
  TY_ASSIGN_OR_RETURN(found, FindConvPlan(lowering, problem));
  InputGradientPlan fused = {std::move(found), true};
  if (fused.plan == nullptr || TakesAlways(lowering)) return fused.plan == nullptr ? plain : fused;
  // Few pixels take one launch for everything, which stays.
  const bool saves_pass = NormKernels(lowering.Pixels(norm->inputs[1])) > 1;
  const double pass = PassMicroseconds(
      lowering, ImageBytes(lowering, norm->inputs[0]) + ImageBytes(lowering, norm->inputs[1]));
  const double separate = plain.plan->facts().microseconds + (saves_pass ? pass : 0);
  // A launch of its own writes what cuDNN reads of the norm.
  const double together = fused.plan->facts().microseconds + kLaunchMicroseconds;
  return HasTime(fused) && together < separate ? fused : plain;
}

absl::StatusOr<bool> ReadersNormalise(Lowering& lowering, const Node& norm, const Place& x) {
  double separate = ApplyMicroseconds(lowering, norm);
  double fused = 0;
  const std::vector<const Node*> readers = ReadersThatCouldNormalise(lowering, norm);
  for (const Node* reader : readers) {
    TY_ASSIGN_OR_RETURN(const ReaderTimes times, TimesOf(lowering, *reader, x));
    if (!times.can_normalise) return false;
    separate += times.separate;
    fused += times.fused;
  }
  return !readers.empty() && (TakesAlways(lowering) || fused < separate);
}

}  // namespace trainyard::engine::cuda
