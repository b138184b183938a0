// Lowers a step graph to a Program: where values lie, which plans and kernels compute them.
//
// Images lie as NHWC with channels padded to vectors, sequences and features as rows. Activations
// and their gradients are of one type; logits too, but for few classes, where they are f32.
// Statistics, sums, parameters and their gradients are f32. Each node becomes one call; parts of
// concatenations and slices are read and written where they lie in their whole.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "worker/engine/backend/cuda/blas/matmul.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/device/step_control.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/dnn/planner.h"
#include "worker/engine/backend/cuda/kernels/convolution.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/loss.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/pool.h"
#include "worker/engine/backend/cuda/packed_weights.h"
#include "worker/engine/backend/cuda/program.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cuda {

// Device memory of the executable, at fixed addresses.
struct StateMemory {
  float* parameters = nullptr;
  float* statistics = nullptr;  // running
  float* reduction = nullptr;
  const StepControl* control = nullptr;
  LossScale* loss_scale = nullptr;  // null: 1
  LossTotals* totals = nullptr;     // of the last loss
  uint32_t* tickets = nullptr;      // zero between launches: see norm.h
  void* loss_workspace = nullptr;
};

struct CompileTarget {
  int64_t rows = 1;
  bool is_training = false;  // adds loss and correct labels to the sums of the step
  Type type = Type::kF32;    // of activations
  bool tf32 = false;
  bool is_guarded = false;
  // Statistics of batch norm are those of all ranks.
  bool merges_ranks = false;
  Fusions fusions = Fusions::kWhereFaster;
  // What the device's memory moves.
  double bytes_per_microsecond = 3e6;
  // Plans of products and convolutions; the second is null where nothing can be run.
  dnn::Planner* planner = nullptr;
  blas::MatmulPlanner* products = nullptr;
};

// Logits of so many classes at most stay f32: they cost nothing there.
inline constexpr int64_t kExactLogitsMax = 1024;

class Compiler {
 public:
  // Borrows everything; `program` is empty, `larger` that of more rows or null.
  Compiler(const StepGraph& step, const ReductionLayout& reduction, const StateMemory& state,
           const PackedWeights& weights, const CompileTarget& target, const Program* larger,
           Program& program);

  // NOT_FOUND and such of plans, with the node's name.
  absl::Status Compile();

 private:
  using Place = Program::Place;
  using Buffers = std::vector<BufferId>;

  const Value& value(ValueId id) const { return step_.graph.value(id); }
  // Of a value: [pixels, channels] for all rows.
  static int64_t ChannelsOf(const Shape& shape);
  int64_t Channels(ValueId id) const { return ChannelsOf(value(id).shape); }
  int64_t PixelsPerRow(ValueId id) const;
  int64_t Pixels(ValueId id) const { return rows_ * PixelsPerRow(id); }
  ImageShape Image(ValueId id) const;
  bool IsImage(ValueId id) const { return value(id).shape.size() == 3; }
  // Whether a value's padding channels are its own to clear.
  bool ClearsPadding(const Place& place, ValueId id) const;

  // Of what was computed already.
  const Place& PlaceOf(ValueId id) const;
  // Where the node's output goes: over an input where the graph says so and both lie alike, within
  // its whole where it is a part, else on its own.
  Place& MakeOutput(const Node& node, int index = 0);
  // On its own, with this type; sequences and features without padding.
  Place& MakePlace(ValueId id, Type type);
  Place& SharePlace(ValueId id, const Place& place);
  // f32 or bits, in no layout: statistics, masks, indices.
  BufferId PlainBuffer(ValueId id, int64_t bytes);
  BufferId PlainBufferOf(ValueId id) const { return PlaceOf(id).buffer; }
  BufferId AddScratch(int64_t bytes) { return program_.AddArenaBuffer(bytes); }

  float* Parameter(ValueId id) const { return state_.parameters + reduction_.entry(id).offset; }
  // Of the gradient of a parameter, in the reduction arena.
  float* Sums(ValueId gradient) const {
    return state_.reduction + reduction_.entry(value(gradient).primal).offset;
  }
  int64_t SumsCount(ValueId gradient) const {
    return reduction_.entry(value(gradient).primal).count;
  }
  // Running, or those of the batch.
  BufferId StatisticBuffer(ValueId id);
  StatisticSums SumsOfStatistics(const Node& norm) const;

  void Emit(const Node& node, std::function<absl::Status(const Enqueue&)> enqueue,
            const Buffers& buffers);
  // The same of kernels, which tell errors when they are launched.
  void EmitKernel(const Node& node, std::function<void(const Enqueue&)> enqueue,
                  const Buffers& buffers);

  void FindParts();
  absl::Status LowerNode(const Node& node);
  void LowerToKernels(const Node& node);
  void LowerInput();
  void LowerInputGradient();
  // lower_conv.cc
  absl::Status LowerConv(const Node& node);
  absl::Status LowerConvInputGradient(const Node& node);
  absl::Status LowerConvParameterGradient(const Node& node);
  // The plan, or null where only our own kernels do it.
  absl::StatusOr<const dnn::Plan*> FindConvPlan(dnn::ConvProblem problem) const;
  dnn::ConvProblem ConvProblemOf(const Node& node, const Place& x, const Place& y) const;
  ConvShape ConvShapeOf(const ConvAttributes& conv, ValueId x, ValueId y,
                        int64_t weight_stride) const;
  // Whether cuDNN sums up the statistics of the norm behind the convolution.
  bool TakesStatistics(const Node& conv) const;
  struct WeightGradientPlan {
    const dnn::Plan* plan = nullptr;  // null: only our own kernels do it
    Type type = Type::kF32;           // of what it computes
  };
  absl::StatusOr<WeightGradientPlan> FindWeightGradientPlan(dnn::ConvProblem problem) const;
  // Whether the plan with statistics does better than the plain one and a pass over the output.
  bool SavesTime(const dnn::Plan& fused, const dnn::Plan& plain, ValueId output) const;
  // From a gradient that lies as a packed weight into the arena's places.
  struct Unpacking {
    int64_t inner = 1, stride = 1;
    std::vector<std::pair<float*, int64_t>> targets;
    void Enqueue(const void* computed, Type type, bool adds, cudaStream_t stream) const;
  };
  Unpacking UnpackingOf(const std::vector<ValueId>& gradients, const WeightCopy& copy) const;
  void EmitBiasGradient(const Node& node, ValueId dy, int64_t first_channel, ValueId dbias);
  // lower_linear.cc
  absl::Status LowerLinear(const Node& node);
  absl::Status LowerLinearInputGradient(const Node& node);
  absl::Status LowerLinearParameterGradient(const Node& node);
  absl::StatusOr<const blas::Matmul*> FindProduct(const blas::MatmulProblem& problem) const;
  // lower_norm.cc
  // Where the operands of batch_norm lie, and what is known of it before.
  struct NormPlaces {
    Place x, y, residual;
    BufferId mask = kNoBuffer;
    NormForward norm;
  };
  NormPlaces PlaceNorm(const Node& node);
  static NormForward Resolve(const Program& program, const NormPlaces& places);
  void LowerNorm(const Node& node);
  // By the sums that a convolution took.
  void LowerNormOfSums(const Node& node, const NormPlaces& places, BufferId computed);
  void LowerNormApply(const Node& node);
  void LowerNormGradient(const Node& node);
  // Of one group's rows, by number of the group.
  BufferId GroupStatistic(ValueId id, int64_t channels) {
    return PlainBuffer(id, step_.max_groups * channels * SizeOf(Type::kF32));
  }
  // lower_local.cc
  void LowerElementwise(const Node& node);
  void LowerElementwiseGradient(const Node& node);
  void LowerAdd(const Node& node);
  void LowerDropout(const Node& node);
  void LowerLrn(const Node& node);
  void LowerFlatten(const Node& node);
  void LowerFlattenGradient(const Node& node);
  void LowerConcat(const Node& node);
  void LowerSlice(const Node& node);
  // lower_pool.cc
  void LowerPool(const Node& node);
  void LowerPoolGradient(const Node& node);
  void LowerGlobalPool(const Node& node);
  void LowerGlobalPoolGradient(const Node& node);
  // lower_sequence.cc
  void LowerLayerNorm(const Node& node);
  void LowerLayerNormGradient(const Node& node);
  void LowerEmbedding(const Node& node);
  void LowerEmbeddingGradient(const Node& node);
  void LowerPositionEmbedding(const Node& node);
  void LowerPositionEmbeddingGradient(const Node& node);
  absl::Status LowerAttention(const Node& node);
  absl::Status LowerAttentionGradient(const Node& node);
  absl::StatusOr<const dnn::Plan*> FindAttentionPlan(const Node& node, bool is_gradient) const;
  // Whether a node writes its result over the value.
  bool IsOverwritten(ValueId id) const;
  // lower_loss.cc
  void LowerLoss(const Node& node);
  void LowerLossGradient(const Node& node);

  const StepGraph& step_;
  const ReductionLayout& reduction_;
  const StateMemory state_;
  const PackedWeights& weights_;
  const CompileTarget target_;
  const int64_t rows_;
  const Program* const larger_;
  Program& program_;
  std::map<ValueId, Place> places_;
  // Values that may lie within another one, from this channel on.
  struct Part {
    ValueId whole = kNoValue;
    int64_t first_channel = 0;
  };
  std::map<ValueId, Part> parts_;
  // By the loss's probabilities, which are not kept: what tells them again.
  struct Softmax {
    ValueId logits = kNoValue;
    BufferId logsum = kNoBuffer;
  };
  std::map<ValueId, Softmax> softmaxes_;
  // By the output of a convolution that summed up its statistics: sum, then sum of squares.
  std::map<ValueId, BufferId> statistics_;
  // Outputs of cuDNN's attention, which its gradient reads, by logsum.
  std::map<ValueId, ValueId> attention_outputs_;
};

}  // namespace trainyard::engine::cuda
