// Element-wise ops, pooling and the loss: our own kernels, in whatever layout the input has.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/cpu/compiler.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

PoolShape MakePoolShape(const PoolAttributes& pool, const Layout& x, const Layout& y) {
  return {x.height, x.width, y.height, y.width, pool.kernel, pool.stride, pool.padding};
}

}  // namespace

void Compiler::LowerElementwise(const Node& node) {
  SetLayout(node.outputs[0], layout(node.inputs[0]));
  const BufferId x = BufferOf(node.inputs[0]);
  const BufferId y = OutputBuffer(node);
  const int64_t elements = Elements(node.inputs[0]);
  const bool is_relu = node.op == OpKind::kRelu;
  const int threads = threads_;
  const Kernels* kernels = &kernels_;
  Program* program = &program_;
  auto run = [=](RunState&) {
    const float* from = program->ptr<float>(x);
    float* to = program->ptr<float>(y);
    ParallelChunks(threads, elements, [&](int64_t begin, int64_t count) {
      if (is_relu) {
        kernels->relu(from + begin, to + begin, count);
        return;
      }
      std::transform(from + begin, from + begin + count, to + begin,
                     [](float v) { return std::tanh(v); });
    });
  };
  EmitCall(node, run, {x, y});
}

void Compiler::LowerElementwiseGradient(const Node& node) {
  const Layout home = layout(node.inputs[1]);
  SetLayout(node.outputs[0], home);
  const BufferId dy = In(node.inputs[0], home);
  const BufferId y = BufferOf(node.inputs[1]);
  const BufferId dx = OutputBuffer(node);
  const int64_t elements = Elements(node.inputs[1]);
  const bool is_relu = node.op == OpKind::kReluGradient;
  const int threads = threads_;
  const Kernels* kernels = &kernels_;
  Program* program = &program_;
  auto run = [=](RunState&) {
    const float* g = program->ptr<float>(dy);
    const float* out = program->ptr<float>(y);
    float* to = program->ptr<float>(dx);
    ParallelChunks(threads, elements, [&](int64_t begin, int64_t count) {
      if (is_relu) {
        kernels->relu_gradient(g + begin, out + begin, to + begin, count);
        return;
      }
      std::transform(g + begin, g + begin + count, out + begin, to + begin,
                     [](float slope, float v) { return slope * (1 - v * v); });
    });
  };
  EmitCall(node, run, {dy, y, dx});
}

void Compiler::LowerAdd(const Node& node) {
  // The layout of the overwritten, or first, input.
  const size_t leader = node.in_place > 0 ? 1 : 0;
  const Layout home = layout(node.inputs[leader]);
  SetLayout(node.outputs[0], home);
  const BufferId a = BufferOf(node.inputs[leader]);
  const BufferId b = In(node.inputs[1 - leader], home);
  const BufferId y = OutputBuffer(node);
  const int64_t elements = Elements(node.outputs[0]);
  const int threads = threads_;
  const Kernels* kernels = &kernels_;
  Program* program = &program_;
  auto run = [=](RunState&) {
    ParallelChunks(threads, elements, [&](int64_t begin, int64_t count) {
      kernels->add(program->ptr<float>(a) + begin, program->ptr<float>(b) + begin,
                   program->ptr<float>(y) + begin, count);
    });
  };
  EmitCall(node, run, {a, b, y});
}

void Compiler::LowerPool(const Node& node) {
  const Layout x_layout = layout(node.inputs[0]);
  Layout y_layout = PlainLayout(value(node.outputs[0]).shape);
  y_layout.block = x_layout.block;
  SetLayout(node.outputs[0], y_layout);
  const PoolShape shape = MakePoolShape(node.pool(), x_layout, y_layout);
  const BufferId x = BufferOf(node.inputs[0]);
  const BufferId y = BufferOf(node.outputs[0]);
  std::vector<BufferId> buffers = {x, y};
  BufferId index = -1;
  if (node.outputs.size() > 1 && node.outputs[1] != kNoValue) {
    SetLayout(node.outputs[1], y_layout);
    // A byte an element.
    index = AddScratch(rows_ * y_layout.elements());
    buffers_[static_cast<size_t>(node.outputs[1])] = index;
    buffers.push_back(index);
  }
  const bool is_max = node.op == OpKind::kMaxPool;
  const bool relu = node.relu;
  const int64_t planes = rows_ * x_layout.blocks();
  const int64_t block = x_layout.block;
  const int64_t x_plane = x_layout.plane() * block;
  const int64_t y_plane = y_layout.plane() * block;
  const int threads = threads_;
  const Kernels* kernels = &kernels_;
  Program* program = &program_;
  auto run = [=](RunState&) {
    ParallelFor(threads, planes, [&](int64_t p) {
      const float* from = program->ptr<float>(x) + p * x_plane;
      float* to = program->ptr<float>(y) + p * y_plane;
      if (is_max) {
        kernels->max_pool(shape, block, from, to,
                          index < 0 ? nullptr : program->ptr<uint8_t>(index) + p * y_plane, relu);
      } else {
        kernels->avg_pool(shape, block, from, to);
      }
    });
  };
  EmitCall(node, run, buffers);
}

void Compiler::LowerPoolGradient(const Node& node) {
  const Layout x_layout = layout(value(node.outputs[0]).primal);
  const bool is_max = node.op == OpKind::kMaxPoolGradient;
  Layout y_layout = PlainLayout(value(node.inputs[0]).shape);
  y_layout.block = x_layout.block;
  SetLayout(node.outputs[0], x_layout);
  const PoolShape shape = MakePoolShape(node.pool(), x_layout, y_layout);
  const BufferId dy = In(node.inputs[0], y_layout);
  const BufferId dx = BufferOf(node.outputs[0]);
  const BufferId index = is_max ? BufferOf(node.inputs[1]) : dy;
  const int64_t planes = rows_ * x_layout.blocks();
  const int64_t block = x_layout.block;
  const int64_t x_plane = x_layout.plane() * block;
  const int64_t y_plane = y_layout.plane() * block;
  const int threads = threads_;
  const Kernels* kernels = &kernels_;
  Program* program = &program_;
  auto run = [=](RunState&) {
    ParallelFor(threads, planes, [&](int64_t p) {
      const float* g = program->ptr<float>(dy) + p * y_plane;
      float* to = program->ptr<float>(dx) + p * x_plane;
      if (is_max) {
        kernels->max_pool_gradient(shape, block, g, program->ptr<uint8_t>(index) + p * y_plane, to);
      } else {
        kernels->avg_pool_gradient(shape, block, g, to);
      }
    });
  };
  EmitCall(node, run, {dy, index, dx});
}

void Compiler::LowerGlobalPool(const Node& node) {
  const Layout x_layout = layout(node.inputs[0]);
  const Layout y_layout = {x_layout.channels, 1, 1, x_layout.block};
  SetLayout(node.outputs[0], y_layout);
  const BufferId x = BufferOf(node.inputs[0]);
  const BufferId y = BufferOf(node.outputs[0]);
  const int64_t planes = rows_ * x_layout.blocks();
  const int threads = threads_;
  const Kernels* kernels = &kernels_;
  Program* program = &program_;
  auto run = [=](RunState&) {
    const int64_t block = x_layout.block;
    ParallelFor(threads, planes, [&](int64_t p) {
      kernels->mean(x_layout.plane(), block, program->ptr<float>(x) + p * x_layout.plane() * block,
                    program->ptr<float>(y) + p * block);
    });
  };
  EmitCall(node, run, {x, y});
}

void Compiler::LowerGlobalPoolGradient(const Node& node) {
  const Layout x_layout = layout(value(node.outputs[0]).primal);
  const Layout y_layout = {x_layout.channels, 1, 1, x_layout.block};
  SetLayout(node.outputs[0], x_layout);
  const BufferId dy = In(node.inputs[0], y_layout);
  const BufferId dx = BufferOf(node.outputs[0]);
  const int64_t planes = rows_ * x_layout.blocks();
  const int threads = threads_;
  const Kernels* kernels = &kernels_;
  Program* program = &program_;
  auto run = [=](RunState&) {
    const int64_t block = x_layout.block;
    ParallelFor(threads, planes, [&](int64_t p) {
      kernels->mean_gradient(x_layout.plane(), block, program->ptr<float>(dy) + p * block,
                             program->ptr<float>(dx) + p * x_layout.plane() * block);
    });
  };
  EmitCall(node, run, {dy, dx});
}

void Compiler::LowerLoss(const Node& node) {
  const ValueId logits = node.inputs[0];
  const Layout plain = PlainLayout(value(logits).shape);
  const int64_t classes = ElementCount(value(logits).shape);
  const BufferId x = In(logits, layout(logits).Plain());
  SetLayout(node.outputs[0], plain);
  const BufferId probabilities = BufferOf(node.outputs[0]);
  const int64_t rows = rows_;
  Program* program = &program_;
  auto run = [=](RunState& state) {
    const float* from = program->ptr<float>(x);
    float* to = program->ptr<float>(probabilities);
    state.loss = 0;
    state.correct = 0;
    for (int64_t n = 0; n < rows; ++n, from += classes, to += classes) {
      const int64_t label = state.labels[n];
      const int64_t best = std::max_element(from, from + classes) - from;
      float sum = 0;
      for (int64_t k = 0; k < classes; ++k) {
        to[k] = std::exp(from[k] - from[best]);
        sum += to[k];
      }
      state.loss += std::log(static_cast<double>(sum)) - (from[label] - from[best]);
      state.correct += best == label ? 1 : 0;
      const float inverse = 1 / sum;
      for (int64_t k = 0; k < classes; ++k) {
        to[k] *= inverse;
      }
    }
    state.loss /= static_cast<double>(rows);
  };
  EmitCall(node, run, {x, probabilities});
}

void Compiler::LowerLossGradient(const Node& node) {
  const BufferId probabilities = BufferOf(node.inputs[0]);
  const Layout plain = layout(node.inputs[0]);
  SetLayout(node.outputs[0], plain);
  const BufferId dx = BufferOf(node.outputs[0]);
  const int64_t rows = rows_;
  const int64_t classes = plain.elements();
  Program* program = &program_;
  auto run = [=](RunState& state) {
    const float* from = program->ptr<float>(probabilities);
    float* to = program->ptr<float>(dx);
    for (int64_t n = 0; n < rows; ++n, from += classes, to += classes) {
      for (int64_t k = 0; k < classes; ++k) {
        to[k] = from[k] * state.gradient_scale;
      }
      to[state.labels[n]] -= state.gradient_scale;
    }
  };
  EmitCall(node, run, {probabilities, dx});
}

}  // namespace trainyard::engine::cpu
