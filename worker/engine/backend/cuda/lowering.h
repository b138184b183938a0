// Contains what the functions that lower nodes share: it records where values lie in device memory,
// and makes a node a call of the program.
//
// Images lie as NHWC with channels padded to vectors; sequences and features lie as rows.
// Activations and their gradients are of one type. Logits are too, unless there are few classes:
// then they are f32. Statistics, sums, parameters and their gradients are f32. Parts of
// concatenations and slices are read and written in place, within their whole.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "worker/engine/backend/concat_parts.h"
#include "worker/engine/backend/cuda/compile_target.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/kernels/packed_weight.h"
#include "worker/engine/backend/cuda/packed_weights.h"
#include "worker/engine/backend/cuda/program.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine::cuda {

using Place = Program::Place;
using Buffers = std::vector<BufferId>;

// Logits of at most this many classes stay f32, which costs nothing there.
inline constexpr int64_t kExactLogitsMax = 1024;

// The operands of a kernel that computes the output of a node from its inputs.
template <int inputs>
struct MapViews {
  std::array<View, inputs> in = {};
  View out = {};
  int64_t pixels = 0;  // of the output
  int64_t channels = 0;
  bool clears_padding = false;
  const StepControl* control = nullptr;
  cudaStream_t stream = nullptr;
};

// Says what a call launches and moves. By default that is one kernel that reads or writes each
// tensor of its node once.
struct Traffic {
  int64_t kernels = 1;
  double bytes = 0;             // that it reads or writes besides
  double more_bytes = 0;        // that kernels after the first one read or write
  bool has_tensors = true;      // false if these bytes are all
  const Node* taken = nullptr;  // the next node, if the call does its work, too
};

// A gradient that lies packed in a buffer until a launch unpacks it.
struct UnpackedLater {
  BufferId buffer = kNoBuffer;
  int64_t bytes = 0;  // that the launch moves
  // Returns what is to be unpacked by a run. Null if there is nothing in any run.
  std::function<PackedGradient(const Enqueue&)> gradient = nullptr;
};

class Lowering {
 public:
  // Borrows everything but `state` and `target`.
  Lowering(const StepGraph& step, const ReductionLayout& reduction, const StepMemory& state,
           const PackedWeights& weights, const CompileTarget& target, Program& program);
  Lowering(const Lowering&) = delete;
  Lowering& operator=(const Lowering&) = delete;

  const StepGraph& step() const { return step_; }
  const StepMemory& state() const { return state_; }
  const ReductionLayout& reduction() const { return reduction_; }
  const PackedWeights& weights() const { return weights_; }
  const CompileTarget& target() const { return target_; }
  int64_t rows() const { return target_.rows; }
  Program& program() { return program_; }

  // These are values that some nodes leave for later ones.
  // The logits of a loss, by the value of its probabilities, which are not computed.
  std::map<ValueId, ValueId> loss_logits;
  // The sums, then the sums of squares, by the output of the convolution that took them as
  // statistics.
  std::map<ValueId, BufferId> convolution_sums;
  // The outputs of batch norms that are not written: readers compute relu(x scale + shift), where x
  // is the norm's input and lies where the output would be found. Scale and shift are padded.
  struct UnwrittenNorm {
    Place scale, shift;
  };
  std::map<ValueId, UnwrittenNorm> unwritten_norms;
  // The sums of a norm's gradient (NormBackwardOfSums), by the gradient at the norm's output: the
  // convolution that made that has taken them, and rectified it.
  std::map<ValueId, BufferId> norm_sums;
  // The outputs of cuDNN's attention, which its gradient reads, by logsum.
  std::map<ValueId, ValueId> attention_outputs;
  // Later nodes whose work is done already.
  std::set<const Node*> taken;

  const Value& value(ValueId id) const { return step_.graph.value(id); }
  // These give the size of a value as a matrix of [pixels, channels] for all rows.
  int64_t Channels(ValueId id) const;
  int64_t PixelsPerRow(ValueId id) const;
  int64_t Pixels(ValueId id) const { return rows() * PixelsPerRow(id); }
  // Returns the bytes that a value takes where kernels read or write it, without padding; 0 for
  // kNoValue, and for values that have no place.
  double Bytes(ValueId id) const;
  bool IsImage(ValueId id) const { return value(id).shape.size() == 3; }
  ImageShape Image(ValueId id) const;
  // Returns true if the value has padding channels that its own kernel must clear.
  bool ClearsPadding(const Place& place, ValueId id) const;
  // Returns true if a concatenation finds the value where it belongs, and need not copy it.
  bool IsPart(ValueId id) const { return parts_.contains(id); }
  bool HasPlace(ValueId id) const { return places_.contains(id); }

  // Returns the place of a value that was computed before.
  const Place& PlaceOf(ValueId id) const;
  // Gives the node's output a place: over an input if the graph allows it, the input has a place,
  // and both have the same layout; within its whole if it is a part of one; and else memory of its
  // own.
  Place& MakeOutput(const Node& node, int index = 0);
  // Gives the value memory of its own. Sequences and features get no padding.
  Place& MakePlace(ValueId id, Type type);
  Place& SharePlace(ValueId id, const Place& place);
  // Gives the value f32 numbers or bits without a layout. This is for statistics, masks and
  // indices.
  BufferId PlainBuffer(ValueId id, int64_t bytes);
  BufferId PlainBufferOf(ValueId id) const { return PlaceOf(id).buffer; }
  BufferId AddScratch(int64_t bytes) { return program_.AddArenaBuffer(bytes); }

  float* Parameter(ValueId id) const { return state_.parameters + reduction_.entry(id).offset; }
  // Returns the gradient of a parameter, in the reduction arena.
  float* Sums(ValueId gradient) const {
    return state_.reduction + reduction_.entry(value(gradient).primal).offset;
  }
  int64_t SumsCount(ValueId gradient) const {
    return reduction_.entry(value(gradient).primal).count;
  }
  // Returns the running statistics, or those of the batch.
  BufferId StatisticBuffer(ValueId id);
  // Returns where a norm adds its batch statistics, or null pointers if it must not.
  StatisticSums SumsOfStatistics(const Node& norm) const;
  StatisticSums SumsAt(const BatchStatistics& statistics) const;

  // Makes the node a call of the program that reads and writes `buffers`. If the node adds to what
  // an earlier one wrote, every run of the call adds.
  void Emit(const Node& node, std::function<absl::Status(const Enqueue&)> enqueue,
            const Buffers& buffers, const Traffic& traffic = {});
  // Notes that kernels of our own compute the node, because the library refused it with `refusal`.
  void FallBack(const Node& node, const absl::Status& refusal);
  // Does so for kernels of our own, which report errors when they are launched.
  void EmitKernel(const Node& node, std::function<void(const Enqueue&)> enqueue,
                  const Buffers& buffers, const Traffic& traffic = {});
  // Emits a kernel, which run(views) launches, that computes the output of the node from its first
  // inputs.
  template <int inputs, class Run>
  void EmitMap(const Node& node, const Run& run) {
    std::array<Place, inputs> from;
    for (size_t i = 0; i < from.size(); ++i) from[i] = PlaceOf(node.inputs[i]);
    const ValueId output = node.outputs[0];
    const Place to = MakeOutput(node);
    Buffers buffers = {to.buffer};
    for (const Place& place : from) buffers.push_back(place.buffer);
    const MapViews<inputs> views = {.pixels = Pixels(output),
                                    .channels = Channels(output),
                                    .clears_padding = ClearsPadding(to, output)};
    EmitKernel(
        node,
        [=, program = &program_](const Enqueue& how) {
          MapViews<inputs> at = views;
          for (size_t i = 0; i < from.size(); ++i) at.in[i] = program->At(from[i]);
          at.out = program->At(to);
          at.control = how.control;
          at.stream = how.stream;
          run(at);
        },
        buffers);
  }
  // Sums the channels [first_channel, ...) of dy over its pixels, and unpacks `other` beside it.
  void EmitBiasGradient(const Node& node, ValueId dy, int64_t first_channel, ValueId dbias,
                        const UnpackedLater& other = {});

 private:
  // Adds the arithmetic and the bytes of `next`, which the call of `node` does as well.
  void CountTaken(const Node& node, const Node& next, Call& call) const;
  // Divides the buffers of a call of this node into those that it only reads, and the others.
  Accesses AccessesOf(const Node& node, const Buffers& buffers);
  // Returns the type in which kernels read a parameter.
  Type TypeRead(ValueId parameter) const;

  const StepGraph& step_;
  const ReductionLayout& reduction_;
  const StepMemory state_;
  const PackedWeights& weights_;
  const CompileTarget target_;
  Program& program_;
  std::map<ValueId, Place> places_;
  std::map<ValueId, double> plain_bytes_;  // of values without a layout
  std::map<ValueId, ConcatPart> parts_;    // the parts that are written in place
  std::map<ValueId, BufferId> sums_;       // the gradients of parameters that calls write
};

}  // namespace trainyard::engine::cuda
