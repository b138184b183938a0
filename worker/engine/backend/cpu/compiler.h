// Lowers a step graph to a Program: chooses layouts, creates oneDNN primitives, emits calls.
//
// Activations and their gradients are of one number type, floats or bf16; so are the packed
// weights that are multiplied with them. What else there is stays in floats: the batch's input,
// logits and loss, statistics, parameters and their gradients. What an op finds in the other type
// is converted as a reorder.
//
// Every value has one home layout, given by what computes it. A convolution asks oneDNN for the
// best formats of both ends (format_tag::any), so chains of convolutions keep one blocked format;
// where a consumer wants another, the value is reordered once and the copy kept for all who want
// it. Element-wise ops, pooling and normalisation take any layout. Weights are packed by
// PackedWeights; gradients of weights leave through a reorder into the reduction arena, which is
// plain.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "dnnl.hpp"
#include "worker/engine/backend/cpu/kernels.h"
#include "worker/engine/backend/cpu/layout.h"
#include "worker/engine/backend/cpu/packed_weights.h"
#include "worker/engine/backend/cpu/program.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cpu {

// Flat memory of the executable, at fixed addresses.
struct StateMemory {
  float* parameters = nullptr;
  float* statistics = nullptr;  // running
  float* reduction = nullptr;
};

class Compiler {
 public:
  // Borrows everything; `program` is empty, `larger` that of more rows or null. oneDNN's exceptions
  // pass through.
  Compiler(const StepGraph& step, const ReductionLayout& reduction, const StateMemory& state,
           int64_t rows, int64_t largest_rows, int threads, NumberType type, dnnl::engine& engine,
           dnnl::stream& stream, PackedWeights& weights, bool is_guarded, const Program* larger,
           Program& program);

  void Compile();

 private:
  struct Conv {
    dnnl::convolution_forward::primitive_desc forward;
    Layout input;   // as the primitive wants it
    Layout output;  // the home layout of the output
  };

  const Value& value(ValueId id) const { return step_.graph.value(id); }
  const Layout& layout(ValueId id) const {
    TY_CHECK(layouts_[static_cast<size_t>(id)].channels > 0);
    return layouts_[static_cast<size_t>(id)];
  }
  void SetLayout(ValueId id, const Layout& layout) { layouts_[static_cast<size_t>(id)] = layout; }
  int64_t Elements(ValueId id) const { return rows_ * layout(id).elements(); }
  // The layout with the number type of activations.
  Layout Stored(const Layout& layout) const { return layout.As(type_); }
  Layout StoredPlain(ValueId id) const { return Stored(PlainLayout(value(id).shape)); }
  float* Parameter(ValueId id) const { return state_.parameters + reduction_.entry(id).offset; }
  float* RunningStatistic(ValueId id) const {
    return state_.statistics + reduction_.entry(id).offset - reduction_.gradient_elements;
  }
  std::vector<absl::Span<float>> Parameters(const std::vector<ValueId>& ids) const {
    std::vector<absl::Span<float>> parameters;
    for (const ValueId id : ids) {
      parameters.emplace_back(Parameter(id), static_cast<size_t>(reduction_.entry(id).count));
    }
    return parameters;
  }
  // Parameters as a primitive of this program wants them.
  dnnl::memory Packed(const std::vector<absl::Span<float>>& parameters,
                      const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted) {
    return weights_.Get(parameters, plain, wanted, program_.packed_weights);
  }
  const ReductionEntry& GradientEntry(ValueId gradient) const {
    return reduction_.entry(value(gradient).primal);
  }

  // The buffer of a value in its home layout; made when first asked for, after SetLayout.
  BufferId BufferOf(ValueId id);
  // The buffer of an output of the node: the overwritten input's where the graph says so and the
  // layouts agree.
  BufferId OutputBuffer(const Node& node, int index = 0);
  // Where the rows of a value lie: elements `offset` on from the buffer, one row `row` elements
  // after the other. Reads a part within its whole; others in `wanted`, copied where need be.
  struct Place {
    BufferId buffer = kNoBuffer;
    int64_t offset = 0;
    int64_t row = 0;
  };
  Place PlaceOf(ValueId id, const Layout& wanted);
  // Of an output of the node, whose layout is set: within its whole where the graph lets it and
  // the layouts agree.
  Place OutputPlace(const Node& node, int index = 0);
  // A part on its own, for who cannot read it within its whole.
  BufferId CopyOfPart(ValueId id);
  // What the kernels see of a place; null of kNoBuffer.
  template <class T>
  static Planes<T> At(const Program& program, const Place& place, const Layout& layout) {
    if (place.buffer == kNoBuffer) {
      return {};
    }
    return {program.ptr<T>(place.buffer) + place.offset, place.row, layout.plane() * layout.block,
            layout.blocks()};
  }
  // An output that is its input seen in another shape.
  void ShareInput(const Node& node, const Layout& layout);
  // The value in this layout: its home, or a copy, reordered once.
  BufferId In(ValueId id, const Layout& wanted);
  void EmitReorder(const std::string& name, BufferId from, const Layout& from_layout, BufferId to,
                   const Layout& to_layout);
  BufferId AddScratch(int64_t bytes) { return program_.AddArenaBuffer(bytes); }
  dnnl::memory Memory(const dnnl::memory::desc& desc, BufferId buffer) {
    return program_.Bound(engine_, desc, buffer);
  }
  std::string CallName(const Node& node) const;
  double Flops(const Node& node) const { return NodeCost(step_.graph, node, rows_).flops; }
  // Emits `run` for the node, touching these buffers.
  void EmitCall(const Node& node, std::function<void(RunState&)> run,
                const std::vector<BufferId>& buffers);

  // The same for a call whose kernels depend on the number type: run(state, kernels) with the
  // Kernels<T> of this program.
  template <class Run>
  void EmitKernels(const Node& node, const Run& run, const std::vector<BufferId>& buffers) {
    if (type_ == NumberType::kBf16) {
      EmitCall(
          node, [run](RunState& state) { run(state, BestKernels<Bf16>()); }, buffers);
    } else {
      EmitCall(
          node, [run](RunState& state) { run(state, BestKernels<float>()); }, buffers);
    }
  }

  // A primitive with its arguments, run from buffers and fixed memory.
  using Arguments = std::unordered_map<int, dnnl::memory>;
  // Adds scratch for the primitive to arguments and buffers.
  void AddScratchpad(const dnnl::memory::desc& scratchpad, Arguments& arguments,
                     std::vector<BufferId>& buffers);

  // Emits the call of a primitive that computes a weight gradient and, where there is one, a bias
  // gradient, into the reduction arena. `arguments` lack both.
  void EmitParameterGradient(const Node& node, const dnnl::primitive& primitive,
                             Arguments arguments, std::vector<BufferId> buffers,
                             const dnnl::memory::desc& computed, const dnnl::memory::desc& plain);

  void BlockStageInput(int64_t block);
  void FindParts();
  static bool FillsBlocks(const Layout& whole, int64_t first, int64_t count);
  void LowerNode(const Node& node);
  // lower_conv.cc
  Conv ChooseConv(const Node& node, bool inference);
  // What computes it between the formats of `conv`: by another algorithm where that is faster.
  dnnl::convolution_forward::primitive_desc DescribeConv(const Node& node, const Conv& conv);
  dnnl::convolution_backward_weights::primitive_desc DescribeConvParameterGradient(
      const ConvAttributes& attributes, const Conv& conv, const dnnl::memory::dims& weight_dims,
      bool has_bias);
  dnnl::convolution_backward_data::primitive_desc DescribeConvInputGradient(
      const ConvAttributes& attributes, const Conv& conv, const dnnl::memory::dims& weight_dims);
  // Of what this step computes of the convolution, between the formats of `conv`; 0: nothing is.
  int Slowness(const Node& node, const Conv& conv, bool inference);
  void LowerConv(const Node& node);
  void LowerConvInputGradient(const Node& node);
  void LowerConvParameterGradient(const Node& node);
  // The parameters among a convolution's inputs from place `first` on: its weight, or the weights
  // of those that were merged.
  std::vector<ValueId> ConvWeights(const Node& node, size_t first = 1) const;
  // Of all weights together.
  dnnl::memory::dims ConvWeightDims(const Node& node, const std::vector<ValueId>& weights) const;
  dnnl::memory::desc PlainConvWeight(const Node& node, const std::vector<ValueId>& weights) const;
  // Runs `primitive` into scratch memory, and from there into the arena's places for the gradients
  // of each weight, and bias, of merged convolutions.
  void EmitMergedParameterGradient(const Node& node, const dnnl::primitive& primitive,
                                   Arguments arguments, std::vector<BufferId> buffers,
                                   const dnnl::memory::desc& computed,
                                   const dnnl::memory::desc& plain);
  // lower_winograd.cc
  // The shape for our own kernels where they compute the convolution; none where oneDNN does.
  std::optional<WinogradShape> FindWinograd(const Node& node, const Conv& conv) const;
  void LowerConvByWinograd(const Node& node, const WinogradShape& shape);
  void LowerConvInputGradientByWinograd(const Node& node, const WinogradShape& shape);
  void LowerConvParameterGradientByWinograd(const Node& node, const WinogradShape& shape);
  // Emits the call that convolves x to y, both in blocks of 16, with transformed weights; null: no
  // bias.
  void EmitWinograd(const Node& node, const WinogradShape& shape, BufferId x, const float* u,
                    const float* bias, BufferId y);
  // lower_linear.cc
  struct LinearFormats {
    dnnl::memory::desc input, weight, plain_weight, bias, output;
    dnnl::memory::desc weight_gradient;  // like `weight`, in floats
    bool is_plain = true;                // `weight` is, but for its number type
    Layout input_layout;
  };
  LinearFormats ChooseLinear(ValueId x, ValueId weight, ValueId y) const;
  void LowerLinear(const Node& node);
  void LowerLinearInputGradient(const Node& node);
  void LowerLinearParameterGradient(const Node& node);
  // lower_norm.cc
  // Of what a pass fused into the node, nowhere for place 0.
  Place FusedInput(const Node& node, int place, const Layout& wanted);
  void LowerNorm(const Node& node);
  BufferId StatisticBuffer(ValueId id);
  void LowerNormEvaluation(const Node& node);
  void LowerNormGradient(const Node& node);
  // lower_channels.cc
  void LowerDropout(const Node& node);
  void LowerConcat(const Node& node);
  void LowerSlice(const Node& node);
  void LowerLrn(const Node& node);
  // lower_sequence.cc
  void LowerLayerNorm(const Node& node);
  void LowerLayerNormGradient(const Node& node);
  void LowerEmbedding(const Node& node);
  void LowerEmbeddingGradient(const Node& node);
  void LowerPositionEmbedding(const Node& node);
  void LowerPositionEmbeddingGradient(const Node& node);
  // lower_attention.cc
  void LowerAttention(const Node& node);
  void LowerAttentionGradient(const Node& node);
  // lower_local.cc
  // Zeroes the channels that only fill the last block; `x` has this layout.
  template <class T>
  static void ClearPadding(const Layout& layout, int64_t rows, T* x);
  void LowerElementwise(const Node& node);
  void LowerElementwiseGradient(const Node& node);
  void LowerAdd(const Node& node);
  void LowerPool(const Node& node);
  void LowerPoolGradient(const Node& node);
  void LowerGlobalPool(const Node& node);
  void LowerGlobalPoolGradient(const Node& node);
  void LowerLoss(const Node& node);
  void LowerLossGradient(const Node& node);
  void LowerStageOutput(const Node& node);
  void LowerStageOutputGradient(const Node& node);

  const StepGraph& step_;
  const ReductionLayout& reduction_;
  const StateMemory state_;
  const int64_t rows_;
  const int64_t largest_rows_;  // that the executable may get
  const int threads_;
  const NumberType type_;  // of activations
  dnnl::engine& engine_;
  dnnl::stream& stream_;
  PackedWeights& weights_;
  const bool is_guarded_;
  const Program* const larger_;
  Program& program_;
  std::vector<Layout> layouts_;    // by value
  std::vector<BufferId> buffers_;  // by value
  struct Copy {
    ValueId value;
    Layout layout;
    BufferId buffer;
  };
  std::vector<Copy> copies_;
  std::map<std::string, Conv> convs_;  // by layer
  // Values that lie, or may lie, within another one, from this channel on.
  struct Part {
    ValueId whole = kNoValue;
    int64_t first_channel = 0;
    // Of the channels at which parts of the whole begin: it lies in blocks that divide it.
    int64_t divisor = 0;
    bool lies_there = false;
  };
  std::map<ValueId, Part> parts_;
};

}  // namespace trainyard::engine::cpu
