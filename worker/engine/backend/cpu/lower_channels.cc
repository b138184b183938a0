// Lowers ops over the channels of a row: dropout, concat, lrn.
#include <algorithm>
#include <vector>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine::cpu {
namespace {

// The place of one input of a concat in a row of the output, in elements.
struct Copied {
  BufferId buffer;
  int64_t offset;
  int64_t count;
};

}  // namespace

// Dropout works in NCHW order, in which the random words count the elements.
void LowerDropout(Lowering& lowering, const Node& node) {
  const Layout plain = lowering.Stored(lowering.layout(node.inputs[0]).Plain());
  lowering.SetLayout(node.outputs[0], plain);
  const BufferId x = lowering.In(node.inputs[0], plain);
  const BufferId y = lowering.OutputBuffer(node);
  const DropoutAttributes dropout = node.dropout();
  const int64_t rows = lowering.rows();
  const int64_t count = plain.elements();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
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
  lowering.EmitKernels(node, run, {x, y});
}

// Keeps the blocks of the first input if all parts but the last fill theirs. Copies the parts that
// do not already lie in place.
void LowerConcat(Lowering& lowering, const Node& node) {
  const Shape& shape = lowering.value(node.outputs[0]).shape;
  Layout y_layout = lowering.StoredPlain(node.outputs[0]);
  if (lowering.HasLayout(node.outputs[0])) {
    y_layout = lowering.layout(node.outputs[0]);  // set by a part that lies in it
  } else if (shape.size() == 3) {
    const int64_t block = lowering.layout(node.inputs[0]).block;
    const bool fills = std::all_of(node.inputs.begin(), node.inputs.end() - 1, [&](ValueId input) {
      return lowering.value(input).shape[0] % block == 0;
    });
    y_layout.block = fills ? block : 1;
  }
  lowering.SetLayout(node.outputs[0], y_layout);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  std::vector<BufferId> buffers = {y};
  std::vector<Copied> parts;
  int64_t offset = 0;
  for (const ValueId input : node.inputs) {
    Layout x_layout = lowering.Stored(lowering.layout(input).Plain());
    x_layout.block = y_layout.block;
    const int64_t count = x_layout.elements();
    if (!lowering.LiesWithin(input)) {
      parts.push_back({lowering.In(input, x_layout), offset, count});
      buffers.push_back(parts.back().buffer);
    }
    offset += count;
  }
  if (parts.empty()) {
    return;
  }
  const int64_t rows = lowering.rows();
  const int64_t row = y_layout.elements();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>&) {
    ParallelFor(threads, rows, [&](int64_t n) {
      for (const Copied& part : parts) {
        std::copy_n(program->ptr<T>(part.buffer) + n * part.count, part.count,
                    program->ptr<T>(y) + n * row + part.offset);
      }
    });
  };
  lowering.EmitKernels(node, run, buffers);
}

void LowerSlice(Lowering& lowering, const Node& node) {
  const ValueId dy = node.inputs[0];
  const Shape& shape = lowering.value(node.outputs[0]).shape;
  const Shape& whole = lowering.value(dy).shape;
  const int64_t first = node.slice().first_channel;
  // Flat values may still lie in the blocks of what was flattened, so they are taken in order.
  Layout y_layout = lowering.Stored(lowering.layout(dy).Plain());
  if (shape.size() == 3) {
    const int64_t block = lowering.layout(dy).block;
    y_layout.block = lowering.FillsBlocks(lowering.layout(dy), first, shape[0]) ? block : 1;
  }
  Layout x_layout = lowering.Stored(PlainLayout(shape));
  x_layout.block = y_layout.block;
  lowering.SetLayout(node.outputs[0], x_layout);
  if (node.slice().is_view && y_layout == lowering.layout(dy)) {
    lowering.LieWithin(node.outputs[0], dy, first);
    return;
  }
  const BufferId from = lowering.In(dy, y_layout);
  const BufferId to = lowering.BufferOf(node.outputs[0]);
  const int64_t offset = first * (ElementCount(whole) / whole[0]);
  const int64_t rows = lowering.rows();
  const int64_t row = y_layout.elements();
  const int64_t count = x_layout.elements();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>&) {
    ParallelFor(threads, rows, [&](int64_t n) {
      std::copy_n(program->ptr<T>(from) + n * row + offset, count, program->ptr<T>(to) + n * count);
    });
  };
  lowering.EmitKernels(node, run, {from, to});
}

namespace {

// Lowers forward (x) -> y, or the gradient (dy, x) -> dx, in the layout of x.
void LowerLrnEitherWay(Lowering& lowering, const Node& node) {
  const bool is_gradient = node.op == OpKind::kLrnGradient;
  const ValueId input = node.inputs[is_gradient ? 1 : 0];
  const Layout home = lowering.Stored(lowering.layout(input));
  lowering.SetLayout(node.outputs[0], home);
  const BufferId x = lowering.In(input, home);
  const BufferId dy = is_gradient ? lowering.In(node.inputs[0], home) : x;
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const layers::Lrn& lrn = node.layer<layers::Lrn>();
  const LrnRule rule = {lrn.size, static_cast<float>(lrn.k),
                        static_cast<float>(lrn.alpha / static_cast<double>(lrn.size)),
                        static_cast<float>(lrn.beta)};
  const int64_t scratch_row = LrnScratch(rule, home.blocks() * home.block);
  const BufferId scratch =
      lowering.AddScratch(lowering.rows() * scratch_row * int64_t{sizeof(float)});
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
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
  lowering.EmitKernels(node, run, {x, dy, y, scratch});
}

}  // namespace

void LowerLrn(Lowering& lowering, const Node& node) {
  LowerLrnEitherWay(lowering, node);
}

void LowerLrnGradient(Lowering& lowering, const Node& node) {
  LowerLrnEitherWay(lowering, node);
}

}  // namespace trainyard::engine::cpu
