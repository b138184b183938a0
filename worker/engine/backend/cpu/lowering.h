// Holds what the ops of a step graph share while they are lowered to a Program: layouts, buffers,
// calls.
//
// Activations and their gradients are of one number type, floats or bf16; so are the packed
// weights that are multiplied with them. Everything else is in floats: the batch's input, logits
// and loss, statistics, parameters and their gradients. If an op needs a value in the other type, a
// reorder converts it.
//
// Every value has one home layout, given by what computes it. A convolution asks oneDNN for the
// best formats of both ends (format_tag::any), so chains of convolutions keep one blocked format.
// If a consumer needs another one, the value is reordered once and the copy is kept for all
// consumers that need it. Element-wise ops, pooling and normalisation take any layout. Weights are
// packed by PackedWeights; gradients of weights leave through a reorder into the reduction arena,
// which is plain.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/check.h"
#include "dnnl.hpp"
#include "worker/engine/backend/concat_parts.h"
#include "worker/engine/backend/cpu/kernels.h"
#include "worker/engine/backend/cpu/layout.h"
#include "worker/engine/backend/cpu/packed_weights.h"
#include "worker/engine/backend/cpu/program.h"
#include "worker/engine/backend/state_memory.h"
#include "worker/engine/graph/cost.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cpu {

// The type of numbers in plain memory, as oneDNN calls it.
inline constexpr auto kF32 = dnnl::memory::data_type::f32;

// The place of the rows of a value: `offset` elements from the beginning of the buffer, one row
// `row` elements after the other.
struct Operand {
  BufferId buffer = kNoBuffer;
  int64_t offset = 0;
  int64_t row = 0;
};

// The address of an operand for kernels. It is null if there is no buffer.
template <class T>
Planes<T> At(const Program& program, const Operand& operand, const Layout& layout) {
  if (operand.buffer == kNoBuffer) {
    return {};
  }
  return {program.ptr<T>(operand.buffer) + operand.offset, operand.row,
          layout.plane() * layout.block, layout.blocks()};
}

// The formats in which a convolution is computed. Those of its gradients follow from them.
struct ConvFormats {
  dnnl::convolution_forward::primitive_desc forward;
  Layout input;   // as the primitive needs it
  Layout output;  // the home layout of the output
};

// The settings of a lowering.
struct LoweringOptions {
  int64_t rows = 1;
  int64_t largest_rows = 1;  // the most that the executable may get
  int threads = 1;
  // The program gives the same bits with any number of threads. oneDNN must then find one thread,
  // here and in each run, since it splits sums among those that it finds.
  bool deterministic = false;
  NumberType type = NumberType::kF32;  // of activations
  bool is_guarded = false;
};

// A part of what an op asks of oneDNN. The number of parts follows from the shape, and is one if
// the program is not deterministic; the threads of the program share them.
struct PrimitivePart {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  dnnl::memory::desc scratchpad = {};
};

// The rows of a batch that a part computes.
struct RowPart {
  int64_t begin, rows;
};

// Makes the parts of these rows. describe(rows) returns a descriptor of the primitive, and
// arguments(descriptor, part) its arguments but for scratch memory.
template <class Primitive, class DescribeRows, class ArgumentsOf>
std::vector<PrimitivePart> MakeParts(const std::vector<RowPart>& ranges,
                                     const DescribeRows& describe, const ArgumentsOf& arguments) {
  std::vector<PrimitivePart> parts;
  typename Primitive::primitive_desc described;
  Primitive primitive;
  int64_t rows = 0;
  for (const RowPart& part : ranges) {
    if (part.rows != rows) {
      rows = part.rows;
      described = describe(rows);
      primitive = Primitive(described);
    }
    parts.push_back({primitive, arguments(described, part), described.scratchpad_desc()});
  }
  return parts;
}

// The places where the parts of a sum leave what they contribute, `stride` floats apart.
struct PartialSums {
  BufferId buffer = kNoBuffer;
  int64_t parts = 0;
  int64_t stride = 0;
  int64_t count = 0;

  // Adds all parts to the first one, in their order.
  void Fold(const Program& program, int threads) const;
};

// Copies or adds weights to others in another format.
class Unpacking {
 public:
  // If the formats are equal, Execute may not be called.
  Unpacking(const dnnl::engine& engine, const dnnl::memory::desc& from,
            const dnnl::memory::desc& to);
  void Execute(const dnnl::stream& stream, const std::unordered_map<int, dnnl::memory>& arguments,
               bool add) const;

 private:
  dnnl::reorder store_;
  dnnl::reorder store_sum_;
};

// Lowers a graph. Each op is lowered by a function of its own (lower_ops.h), in the order of the
// graph.
class Lowering {
 public:
  // A primitive's arguments, in buffers and fixed memory.
  using Arguments = std::unordered_map<int, dnnl::memory>;

  // Borrows everything. `program` must be empty. Exceptions of oneDNN pass through.
  Lowering(const StepGraph& step, const ReductionLayout& reduction, const StateMemory& state,
           const LoweringOptions& options, dnnl::engine& engine, dnnl::stream& stream,
           PackedWeights& weights, Program& program);
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;

  const StepGraph& step() const { return step_; }
  int64_t rows() const { return options_.rows; }
  int64_t largest_rows() const { return options_.largest_rows; }
  int threads() const { return options_.threads; }
  bool deterministic() const { return options_.deterministic; }
  NumberType type() const { return options_.type; }
  dnnl::engine& engine() { return engine_; }
  const dnnl::stream& stream() const { return stream_; }
  PackedWeights& weights() { return weights_; }
  Program& program() { return program_; }

  // Prepares the batch's input, and finds which values will lie within others. It is called before
  // the first node.
  void Begin();
  // Notes what must be there when the program ends. It is called after the last node.
  void Finish();

  const Value& value(ValueId id) const { return step_.graph.value(id); }
  const Layout& layout(ValueId id) const {
    TY_CHECK(layouts_[static_cast<size_t>(id)].channels > 0);
    return layouts_[static_cast<size_t>(id)];
  }
  void SetLayout(ValueId id, const Layout& layout) { layouts_[static_cast<size_t>(id)] = layout; }
  int64_t Elements(ValueId id) const { return rows() * layout(id).elements(); }
  // Returns the layout with the number type of activations.
  Layout Stored(const Layout& layout) const { return layout.As(type()); }
  Layout StoredPlain(ValueId id) const { return Stored(PlainLayout(value(id).shape)); }
  float* Parameter(ValueId id) const { return state_.parameters + reduction_.entry(id).offset; }
  float* RunningStatistic(ValueId id) const {
    return state_.statistics + reduction_.entry(id).offset - reduction_.gradient_elements;
  }
  std::vector<absl::Span<float>> Parameters(const std::vector<ValueId>& ids) const {
    std::vector<absl::Span<float>> parameters;
    parameters.reserve(ids.size());
    for (const ValueId id : ids) {
      parameters.emplace_back(Parameter(id), static_cast<size_t>(reduction_.entry(id).count));
    }
    return parameters;
  }
  // Returns parameters in the form that a primitive of this program needs.
  dnnl::memory Packed(const std::vector<absl::Span<float>>& parameters,
                      const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted) {
    return weights_.Get(parameters, plain, wanted, program_.packed_weights);
  }
  // Returns where the sums of a parameter's gradient lie.
  float* GradientSums(ValueId gradient) const {
    return state_.reduction + GradientEntry(gradient).offset;
  }
  const ReductionEntry& GradientEntry(ValueId gradient) const {
    return reduction_.entry(value(gradient).primal);
  }

  // Returns the buffer of a value in its home layout. It is made at the first call, after
  // SetLayout.
  BufferId BufferOf(ValueId id);
  // Returns the buffer of an output of the node. It is the overwritten input's if the graph allows
  // that and the layouts agree.
  BufferId OutputBuffer(const Node& node, int index = 0);
  // Returns a part within its whole, and other values in `wanted`, copied if necessary.
  Operand OperandOf(ValueId id, const Layout& wanted);
  // Returns where an output of the node is written, whose layout must be set: within its whole if
  // the graph allows it and the layouts agree.
  Operand OutputOperand(const Node& node, int index = 0);
  // Makes an output its input, seen in another shape.
  void ShareInput(const Node& node, const Layout& layout);
  // Returns the value in this layout: its home, or a copy that is reordered once.
  BufferId In(ValueId id, const Layout& wanted);
  void EmitReorder(const std::string& name, BufferId from, const Layout& from_layout, BufferId to,
                   const Layout& to_layout);
  BufferId AddScratch(int64_t bytes) { return program_.AddArenaBuffer(bytes); }
  dnnl::memory Memory(const dnnl::memory::desc& desc, BufferId buffer, int64_t offset = 0) {
    return program_.Bound(engine_, desc, buffer, offset);
  }
  std::string CallName(const Node& node) const;
  double Flops(const Node& node) const { return NodeCost(step_.graph, node, rows()).flops; }
  // Emits `run` for the node, touching these buffers. If the node adds to what an earlier one
  // wrote, `accumulate` is set in each run.
  void EmitCall(const Node& node, std::function<void(RunState&)> run,
                const std::vector<BufferId>& buffers);

  // Emits a call whose kernels depend on the number type: run(state, kernels) gets the Kernels<T>
  // of this program.
  template <class Run>
  void EmitKernels(const Node& node, const Run& run, const std::vector<BufferId>& buffers) {
    if (type() == NumberType::kBf16) {
      EmitCall(
          node, [run](RunState& state) { run(state, BestKernels<Bf16>()); }, buffers);
    } else {
      EmitCall(
          node, [run](RunState& state) { run(state, BestKernels<float>()); }, buffers);
    }
  }

  // Returns into how many parts work of so many operations is split: a power of two, at most
  // `most`, and 1 if the program is not deterministic.
  int64_t PartsOf(double flops, int64_t most) const;
  // Splits the rows of the node's work into parts of at least `rows_min`. All but the last one are
  // equal.
  std::vector<RowPart> PartRows(const Node& node, int64_t rows_min) const;
  // Adds scratch memory for the parts to their arguments and to the buffers.
  void AddScratchpads(std::vector<PrimitivePart>& parts, std::vector<BufferId>& buffers);
  // Adds memory for a result of each part to their arguments and to the buffers.
  PartialSums AddPartialSums(int argument, const dnnl::memory::desc& desc,
                             std::vector<PrimitivePart>& parts, std::vector<BufferId>& buffers);
  // Returns what executes the parts, which have all their arguments.
  std::function<void()> Execution(std::vector<PrimitivePart> parts) const;
  // Emits the call of parts that lack nothing but scratch memory.
  void EmitParts(const Node& node, std::vector<PrimitivePart> parts, std::vector<BufferId> buffers);
  // Emits the call of parts whose sum is a weight gradient and, if there is one, a bias gradient,
  // into the reduction arena. The arguments lack both, and scratch memory.
  void EmitParameterGradient(const Node& node, std::vector<PrimitivePart> parts,
                             std::vector<BufferId> buffers, const dnnl::memory::desc& computed,
                             const dnnl::memory::desc& plain);

  // Returns true if channels [first, first + count) of `whole` are whole blocks.
  static bool FillsBlocks(const Layout& whole, int64_t first, int64_t count);

  // Notes that an output of the node lies in a buffer that the op has made itself.
  void SetBuffer(ValueId id, BufferId buffer) { buffers_[static_cast<size_t>(id)] = buffer; }
  // Notes that the value lies within `whole`, from this channel on.
  void LieWithin(ValueId id, ValueId whole, int64_t first_channel);
  // Returns true if the value was written within its whole.
  bool LiesWithin(ValueId id) const;
  // Returns true if a part has already given the value its layout.
  bool HasLayout(ValueId id) const { return layouts_[static_cast<size_t>(id)].channels > 0; }

  // The formats of convolutions, by layer. Gradients use those of the forward op.
  std::map<std::string, ConvFormats>& convs() { return convs_; }

 private:
  // A value that lies, or may lie, within another one.
  struct Part {
    ConcatPart place;
    bool lies_there = false;
  };
  // A value in a layout other than its home.
  struct Copy {
    ValueId value;
    Layout layout;
    BufferId buffer;
  };

  void BlockStageInput(int64_t block);
  // Returns a part on its own, for ops that cannot read it within its whole.
  BufferId CopyOfPart(ValueId id);

  const StepGraph& step_;
  const ReductionLayout& reduction_;
  const StateMemory state_;
  const LoweringOptions options_;
  dnnl::engine& engine_;
  dnnl::stream& stream_;
  PackedWeights& weights_;
  Program& program_;
  std::vector<Layout> layouts_;    // by value
  std::vector<BufferId> buffers_;  // by value
  std::vector<Copy> copies_;
  std::map<std::string, ConvFormats> convs_;
  std::map<ValueId, Part> parts_;
};

}  // namespace trainyard::engine::cpu
