// Keeps layouts and buffers of values, and emits calls that several ops need.
#include "worker/engine/backend/cpu/lowering.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {

Lowering::Lowering(const StepGraph& step, const ReductionLayout& reduction,
                   const StateMemory& state, const LoweringOptions& options, dnnl::engine& engine,
                   dnnl::stream& stream, PackedWeights& weights, Program& program)
    : step_(step),
      reduction_(reduction),
      state_(state),
      options_(options),
      engine_(engine),
      stream_(stream),
      weights_(weights),
      program_(program),
      layouts_(step.graph.values.size()),
      buffers_(step.graph.values.size(), -1) {}

void Lowering::Begin() {
  const ValueId input = step_.graph.input;
  SetLayout(input, PlainLayout(value(input).shape));
  SetBuffer(input, program_.AddInputBuffer());
  if (step_.graph.has_stage_input && program_.stage_input_block > 1) {
    BlockStageInput(program_.stage_input_block);
  }
  for (const auto& [id, part] : PlacedParts(step_.graph)) parts_[id] = {.place = part};
}

void Lowering::Finish() {
  if (step_.graph.has_loss()) {
    const ValueId logits = step_.graph.logits;
    // The logits are as the loss read them.
    program_.logits = In(logits, layout(logits).Plain().As(NumberType::kF32));
    if (std::find(step_.kept.begin(), step_.kept.end(), logits) != step_.kept.end()) {
      program_.Keep(program_.logits);
    }
  }
  if (step_.input_gradient != kNoValue) {
    program_.input_gradient = In(step_.input_gradient, PlainLayout(value(step_.graph.input).shape));
    program_.Keep(program_.input_gradient);
  }
  for (const BatchStatistics& statistics : step_.statistics) {
    program_.statistics.emplace_back(BufferOf(statistics.mean), BufferOf(statistics.variance));
    program_.Keep(program_.statistics.back().first);
    program_.Keep(program_.statistics.back().second);
  }
}

// A stage continues in the layout in which the stage before left the boundary value. Sums are then
// taken in the order of a whole model, and give the same bits.
void Lowering::BlockStageInput(int64_t block) {
  const ValueId input = step_.graph.input;
  const Layout plain = layout(input);
  Layout blocked = Stored(plain);
  blocked.block = block;
  const BufferId from = BufferOf(input);
  const BufferId to = AddScratch(rows() * blocked.bytes());
  EmitReorder(absl::StrCat(value(input).name, " reorder"), from, plain, to, blocked);
  SetLayout(input, blocked);
  buffers_[static_cast<size_t>(input)] = to;
}

bool Lowering::FillsBlocks(const Layout& whole, int64_t first, int64_t count) {
  return first % whole.block == 0 && (count % whole.block == 0 || first + count == whole.channels);
}

Operand Lowering::OperandOf(ValueId id, const Layout& wanted) {
  const auto part = parts_.find(id);
  if (part == parts_.end() || !part->second.lies_there || !(layout(id) == wanted)) {
    return {In(id, wanted), 0, wanted.elements()};
  }
  const Layout& whole = layout(part->second.place.whole);
  return {BufferOf(part->second.place.whole), part->second.place.first_channel * whole.plane(),
          whole.elements()};
}

Operand Lowering::OutputOperand(const Node& node, int index) {
  const ValueId output = node.outputs[static_cast<size_t>(index)];
  const auto found = parts_.find(output);
  if (found != parts_.end()) {
    Part& part = found->second;
    Layout whole = PlainLayout(value(part.place.whole).shape).As(layout(output).type);
    whole.block = layout(output).block;
    const bool is_first = layouts_[static_cast<size_t>(part.place.whole)].channels == 0;
    part.lies_there = part.place.divisor % whole.block == 0 &&
                      FillsBlocks(whole, part.place.first_channel, layout(output).channels) &&
                      (is_first || layout(part.place.whole) == whole);
    if (part.lies_there) {
      SetLayout(part.place.whole, whole);
      return OperandOf(output, layout(output));
    }
  }
  return {OutputBuffer(node, index), 0, layout(output).elements()};
}

BufferId Lowering::CopyOfPart(ValueId id) {
  const Layout home = layout(id);
  const Operand from = OperandOf(id, home);
  const BufferId to = AddScratch(rows() * home.bytes());
  const int64_t rows = options_.rows;
  const int threads = options_.threads;
  const int64_t size = NumberBytes(home.type);
  Program* program = &program_;
  auto run = [=](RunState&) {
    ParallelFor(threads, rows, [&](int64_t n) {
      std::copy_n(program->ptr<std::byte>(from.buffer) + (from.offset + n * from.row) * size,
                  home.bytes(), program->ptr<std::byte>(to) + n * home.bytes());
    });
  };
  program_.Emit({.name = absl::StrCat(value(id).name, " copy"), .op = "copy", .run = run},
                {from.buffer, to});
  return to;
}

void Lowering::LieWithin(ValueId id, ValueId whole, int64_t first_channel) {
  parts_[id] = {.place = {whole, first_channel}, .lies_there = true};
}

bool Lowering::LiesWithin(ValueId id) const {
  const auto part = parts_.find(id);
  return part != parts_.end() && part->second.lies_there;
}

BufferId Lowering::BufferOf(ValueId id) {
  BufferId& buffer = buffers_[static_cast<size_t>(id)];
  const auto part = parts_.find(id);
  if (buffer < 0 && part != parts_.end() && part->second.lies_there) {
    buffer = CopyOfPart(id);
  }
  if (buffer < 0) {
    const Value& of = value(id);
    int64_t bytes = 0;
    if (of.element == Element::kBit) {
      // Every plane begins at a byte.
      bytes = rows() * layout(id).blocks() * MaskBytes(layout(id).plane(), layout(id).block);
    } else {
      const int64_t count = of.per_row ? rows() * layout(id).elements() : ElementCount(of.shape);
      bytes =
          BytesOf(of.element, count, NumberBytes(of.per_row ? layout(id).type : NumberType::kF32));
    }
    buffer = program_.AddArenaBuffer(bytes);
  }
  return buffer;
}

BufferId Lowering::OutputBuffer(const Node& node, int index) {
  const ValueId output = node.outputs[static_cast<size_t>(index)];
  const int overwritten = node.OverwrittenBy(index);
  if (overwritten >= 0) {
    const ValueId input = node.inputs[static_cast<size_t>(overwritten)];
    if (layout(input) == layout(output)) {
      buffers_[static_cast<size_t>(output)] = BufferOf(input);
    }
  }
  return BufferOf(output);
}

void Lowering::ShareInput(const Node& node, const Layout& shared) {
  buffers_[static_cast<size_t>(node.outputs[0])] = BufferOf(node.inputs[0]);
  SetLayout(node.outputs[0], shared);
}

BufferId Lowering::In(ValueId id, const Layout& wanted) {
  const Layout& home = layout(id);
  if (home == wanted || (home.is_plain() && wanted.is_plain() && home.type == wanted.type)) {
    return BufferOf(id);
  }
  for (const Copy& copy : copies_) {
    if (copy.value == id && copy.layout == wanted) {
      return copy.buffer;
    }
  }
  const BufferId copy = AddScratch(rows() * wanted.bytes());
  // These are a flat value and its blocks before a flatten. The plain one takes the other's shape.
  EmitReorder(absl::StrCat(value(id).name, " reorder"), BufferOf(id),
              home.is_plain() ? wanted.Plain().As(home.type) : home, copy,
              wanted.is_plain() ? home.Plain().As(wanted.type) : wanted);
  copies_.push_back({id, wanted, copy});
  return copy;
}

void Lowering::EmitReorder(const std::string& name, BufferId from, const Layout& from_layout,
                           BufferId to, const Layout& to_layout) {
  const dnnl::memory source = Memory(Describe(from_layout, rows()), from);
  const dnnl::memory target = Memory(Describe(to_layout, rows()), to);
  const dnnl::reorder reorder(source, target);
  dnnl::stream stream = stream_;
  const Arguments arguments = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}};
  program_.Emit(
      {.name = name,
       .op = "reorder",
       .run = [reorder, stream, arguments](RunState&) { reorder.execute(stream, arguments); }},
      {from, to});
}

std::string Lowering::CallName(const Node& node) const {
  return absl::StrCat(node.name, " ", OpName(node.op), node.relu ? "+relu" : "");
}

void Lowering::EmitCall(const Node& node, std::function<void(RunState&)> run,
                        const std::vector<BufferId>& buffers) {
  if (node.adds) {
    run = [run = std::move(run)](RunState& state) {
      const bool accumulate = std::exchange(state.accumulate, true);
      run(state);
      state.accumulate = accumulate;
    };
  }
  program_.Emit({.name = CallName(node),
                 .op = std::string(OpName(node.op)),
                 .run = std::move(run),
                 .flops = Flops(node)},
                buffers);
}

Unpacking::Unpacking(const dnnl::engine& engine, const dnnl::memory::desc& from,
                     const dnnl::memory::desc& to) {
  if (from == to) return;
  dnnl::post_ops sum;
  sum.append_sum(1.0f);
  dnnl::primitive_attr add;
  add.set_post_ops(sum);
  store_ = dnnl::reorder({engine, from, engine, to});
  store_sum_ = dnnl::reorder({engine, from, engine, to, add});
}

void Unpacking::Execute(const dnnl::stream& stream,
                        const std::unordered_map<int, dnnl::memory>& arguments, bool add) const {
  (add ? store_sum_ : store_).execute(stream, arguments);
}

}  // namespace trainyard::engine::cpu
