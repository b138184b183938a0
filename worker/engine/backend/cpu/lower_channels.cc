// Ops over the channels of a row: dropout, concat, lrn.
#include <algorithm>
#include <vector>

#include "worker/engine/backend/cpu/compiler.h"
#include "worker/engine/backend/cpu/parallel.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine::cpu {
namespace {

// Where one input of a concat lies in a row of the output, in elements.
struct Copied {
  BufferId buffer;
  int64_t offset;
  int64_t count;
};

}  // namespace

// In NCHW order, as the random words count the elements.
void Compiler::LowerDropout(const Node& node) {
  const Layout plain = Stored(layout(node.inputs[0]).Plain());
  SetLayout(node.outputs[0], plain);
  const BufferId x = In(node.inputs[0], plain);
  const BufferId y = OutputBuffer(node);
  const DropoutAttributes dropout = node.dropout();
  const int64_t rows = rows_;
  const int64_t count = plain.elements();
  const int threads = threads_;
  Program* program = &program_;
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const std::array<uint32_t, 2> key = DropoutKey(state.position);
    ParallelFor(threads, rows, [&](int64_t n) {
      const DropoutRule rule = {{key[0], key[1]},
                                dropout.layer,
                                static_cast<uint32_t>(state.position.first_row + n),
                                static_cast<uint32_t>(state.position.step),
                                DropoutThreshold(dropout),
                                static_cast<float>(1 / (1 - dropout.rate))};
      kernels.dropout(rule, count, program->ptr<T>(x) + n * count, program->ptr<T>(y) + n * count);
    });
  };
  EmitKernels(node, run, {x, y});
}

// Keeps the blocks of the first input where all parts but the last fill theirs. Copies the parts
// that do not lie in place.
void Compiler::LowerConcat(const Node& node) {
  const Shape& shape = value(node.outputs[0]).shape;
  Layout y_layout = StoredPlain(node.outputs[0]);
  const Layout& given = layouts_[static_cast<size_t>(node.outputs[0])];
  if (given.channels > 0) {
    y_layout = given;  // by a part that lies in it
  } else if (shape.size() == 3) {
    const int64_t block = layout(node.inputs[0]).block;
    const bool fills = std::all_of(node.inputs.begin(), node.inputs.end() - 1, [&](ValueId input) {
      return value(input).shape[0] % block == 0;
    });
    y_layout.block = fills ? block : 1;
  }
  SetLayout(node.outputs[0], y_layout);
  const BufferId y = BufferOf(node.outputs[0]);
  std::vector<BufferId> buffers = {y};
  std::vector<Copied> parts;
  int64_t offset = 0;
  for (const ValueId input : node.inputs) {
    Layout x_layout = Stored(layout(input).Plain());
    x_layout.block = y_layout.block;
    const int64_t count = x_layout.elements();
    const auto part = parts_.find(input);
    if (part == parts_.end() || !part->second.lies_there) {
      parts.push_back({In(input, x_layout), offset, count});
      buffers.push_back(parts.back().buffer);
    }
    offset += count;
  }
  if (parts.empty()) {
    return;
  }
  const int64_t rows = rows_;
  const int64_t row = y_layout.elements();
  const int threads = threads_;
  Program* program = &program_;
  auto run = [=]<class T>(RunState&, const Kernels<T>&) {
    ParallelFor(threads, rows, [&](int64_t n) {
      for (const Copied& part : parts) {
        std::copy_n(program->ptr<T>(part.buffer) + n * part.count, part.count,
                    program->ptr<T>(y) + n * row + part.offset);
      }
    });
  };
  EmitKernels(node, run, buffers);
}

void Compiler::LowerSlice(const Node& node) {
  const ValueId dy = node.inputs[0];
  const Shape& shape = value(node.outputs[0]).shape;
  const Shape& whole = value(dy).shape;
  const int64_t first = node.slice().first_channel;
  // Flat values may lie in blocks of what was flattened: they are taken in order.
  Layout y_layout = Stored(layout(dy).Plain());
  if (shape.size() == 3) {
    const int64_t block = layout(dy).block;
    y_layout.block = FillsBlocks(layout(dy), first, shape[0]) ? block : 1;
  }
  Layout x_layout = Stored(PlainLayout(shape));
  x_layout.block = y_layout.block;
  SetLayout(node.outputs[0], x_layout);
  if (node.slice().is_view && y_layout == layout(dy)) {
    parts_[node.outputs[0]] = {.whole = dy, .first_channel = first, .lies_there = true};
    return;
  }
  const BufferId from = In(dy, y_layout);
  const BufferId to = BufferOf(node.outputs[0]);
  const int64_t offset = first * (ElementCount(whole) / whole[0]);
  const int64_t rows = rows_;
  const int64_t row = y_layout.elements();
  const int64_t count = x_layout.elements();
  const int threads = threads_;
  Program* program = &program_;
  auto run = [=]<class T>(RunState&, const Kernels<T>&) {
    ParallelFor(threads, rows, [&](int64_t n) {
      std::copy_n(program->ptr<T>(from) + n * row + offset, count, program->ptr<T>(to) + n * count);
    });
  };
  EmitKernels(node, run, {from, to});
}

// Forward (x) -> y, or the gradient (dy, x) -> dx, in the layout of x.
void Compiler::LowerLrn(const Node& node) {
  const bool is_gradient = node.op == OpKind::kLrnGradient;
  const ValueId input = node.inputs[is_gradient ? 1 : 0];
  const Layout home = Stored(layout(input));
  SetLayout(node.outputs[0], home);
  const BufferId x = In(input, home);
  const BufferId dy = is_gradient ? In(node.inputs[0], home) : x;
  const BufferId y = BufferOf(node.outputs[0]);
  const LrnAttributes& lrn = node.lrn();
  const LrnRule rule = {lrn.size, static_cast<float>(lrn.k),
                        static_cast<float>(lrn.alpha / static_cast<double>(lrn.size)),
                        static_cast<float>(lrn.beta)};
  const int64_t scratch_row = LrnScratch(rule, home.blocks() * home.block);
  const BufferId scratch = AddScratch(rows_ * scratch_row * int64_t{sizeof(float)});
  const int64_t rows = rows_;
  const int threads = threads_;
  Program* program = &program_;
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const int64_t row = home.elements();
    ParallelFor(threads, rows, [&](int64_t n) {
      const T* from = program->ptr<T>(x) + n * row;
      T* to = program->ptr<T>(y) + n * row;
      float* mine = program->ptr<float>(scratch) + n * scratch_row;
      if (is_gradient) {
        kernels.lrn_gradient(rule, home.blocks(), home.plane(), home.block,
                             program->ptr<T>(dy) + n * row, from, to, mine);
      } else {
        kernels.lrn(rule, home.blocks(), home.plane(), home.block, from, to, mine);
      }
    });
  };
  EmitKernels(node, run, {x, dy, y, scratch});
}

}  // namespace trainyard::engine::cpu
