// Element-wise ops, pooling, the loss and the ends of stages: our own kernels, in whatever layout
// the input has.
#include <algorithm>
#include <cmath>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"
#include "worker/engine/backend/judge.h"

namespace trainyard::engine::cpu {
namespace {

PoolShape MakePoolShape(const PoolAttributes& pool, const Layout& x, const Layout& y) {
  return {x.height,    x.width,     y.height,     y.width,
          pool.kernel, pool.stride, pool.padding, pool.count_padding};
}

template <class T>
using Unary = void (*)(const T* x, T* y, int64_t count);
template <class T>
using Binary = void (*)(const T* dy, const T* other, T* dx, int64_t count);

template <class T>
Unary<T> ForwardKernel(const Kernels<T>& kernels, const Node& node) {
  switch (node.op) {
    case OpKind::kRelu:
      return kernels.relu;
    case OpKind::kTanh:
      return kernels.tanh;
    case OpKind::kSigmoid:
      return kernels.sigmoid;
    case OpKind::kGelu:
      return node.layer<layers::Gelu>().tanh ? kernels.gelu_tanh : kernels.gelu;
    default:
      CheckFailed(__FILE__, __LINE__, "no element-wise op: " + node.name);
  }
}

template <class T>
Binary<T> GradientKernel(const Kernels<T>& kernels, const Node& node) {
  switch (node.op) {
    case OpKind::kReluGradient:
      return kernels.relu_gradient;
    case OpKind::kTanhGradient:
      return kernels.tanh_gradient;
    case OpKind::kSigmoidGradient:
      return kernels.sigmoid_gradient;
    case OpKind::kGeluGradient:
      return node.layer<layers::Gelu>().tanh ? kernels.gelu_tanh_gradient : kernels.gelu_gradient;
    default:
      CheckFailed(__FILE__, __LINE__, "no element-wise gradient: " + node.name);
  }
}

// Zeroes the channels that only fill the last block; `x` has this layout.
template <class T>
void ClearPadding(const Layout& layout, int64_t rows, T* x) {
  const int64_t used = layout.channels % layout.block;
  if (used == 0) {
    return;
  }
  for (int64_t n = 0; n < rows; ++n) {
    T* last = x + (n + 1) * layout.elements() - layout.plane() * layout.block;
    for (int64_t p = 0; p < layout.plane(); ++p) {
      std::fill(last + p * layout.block + used, last + (p + 1) * layout.block, T{});
    }
  }
}

void LowerElementwise(Lowering& lowering, const Node& node) {
  const Layout home = lowering.Stored(lowering.layout(node.inputs[0]));
  lowering.SetLayout(node.outputs[0], home);
  const BufferId x = lowering.In(node.inputs[0], home);
  const BufferId y = lowering.OutputBuffer(node);
  const int64_t elements = lowering.Elements(node.inputs[0]);
  // The others leave zeros as they are.
  const bool spoils_padding = node.op == OpKind::kSigmoid;
  const int64_t rows = lowering.rows();
  const int threads = lowering.threads();
  const Node which = node;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const Unary<T> kernel = ForwardKernel(kernels, which);
    const T* from = program->ptr<T>(x);
    T* to = program->ptr<T>(y);
    ParallelChunks(threads, elements,
                   [&](int64_t begin, int64_t count) { kernel(from + begin, to + begin, count); });
    if (spoils_padding) {
      ClearPadding(home, rows, to);
    }
  };
  lowering.EmitKernels(node, run, {x, y});
}

void LowerElementwiseGradient(Lowering& lowering, const Node& node) {
  const Layout home = lowering.Stored(lowering.layout(node.inputs[1]));
  lowering.SetLayout(node.outputs[0], home);
  const BufferId dy = lowering.In(node.inputs[0], home);
  const BufferId y = lowering.In(node.inputs[1], home);
  const BufferId dx = lowering.OutputBuffer(node);
  const int64_t elements = lowering.Elements(node.inputs[1]);
  const int threads = lowering.threads();
  const Node which = node;
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const Binary<T> kernel = GradientKernel(kernels, which);
    const T* g = program->ptr<T>(dy);
    const T* out = program->ptr<T>(y);
    T* to = program->ptr<T>(dx);
    ParallelChunks(threads, elements, [&](int64_t begin, int64_t count) {
      kernel(g + begin, out + begin, to + begin, count);
    });
  };
  lowering.EmitKernels(node, run, {dy, y, dx});
}

void LowerPool(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(node.inputs[0]));
  Layout y_layout = lowering.StoredPlain(node.outputs[0]);
  y_layout.block = x_layout.block;
  lowering.SetLayout(node.outputs[0], y_layout);
  const PoolShape shape = MakePoolShape(node.pool(), x_layout, y_layout);
  const BufferId x = lowering.In(node.inputs[0], x_layout);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  std::vector<BufferId> buffers = {x, y};
  BufferId index = -1;
  if (node.outputs.size() > 1 && node.outputs[1] != kNoValue) {
    lowering.SetLayout(node.outputs[1], y_layout);
    // A byte an element.
    index = lowering.AddScratch(lowering.rows() * y_layout.elements());
    lowering.SetBuffer(node.outputs[1], index);
    buffers.push_back(index);
  }
  const bool is_max = node.op == OpKind::kMaxPool;
  const bool relu = node.relu;
  const int64_t planes = lowering.rows() * x_layout.blocks();
  const int64_t block = x_layout.block;
  const int64_t x_plane = x_layout.plane() * block;
  const int64_t y_plane = y_layout.plane() * block;
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelFor(threads, planes, [&](int64_t p) {
      const T* from = program->ptr<T>(x) + p * x_plane;
      T* to = program->ptr<T>(y) + p * y_plane;
      if (is_max) {
        kernels.max_pool(shape, block, from, to,
                         index < 0 ? nullptr : program->ptr<uint8_t>(index) + p * y_plane, relu);
      } else {
        kernels.avg_pool(shape, block, from, to);
      }
    });
  };
  lowering.EmitKernels(node, run, buffers);
}

void LowerPoolGradient(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(lowering.value(node.outputs[0]).primal));
  const bool is_max = node.op == OpKind::kMaxPoolGradient;
  Layout y_layout = lowering.StoredPlain(node.inputs[0]);
  y_layout.block = x_layout.block;
  lowering.SetLayout(node.outputs[0], x_layout);
  const PoolShape shape = MakePoolShape(node.pool(), x_layout, y_layout);
  const BufferId dy = lowering.In(node.inputs[0], y_layout);
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const BufferId index = is_max ? lowering.BufferOf(node.inputs[1]) : dy;
  const int64_t planes = lowering.rows() * x_layout.blocks();
  const int64_t block = x_layout.block;
  const int64_t x_plane = x_layout.plane() * block;
  const int64_t y_plane = y_layout.plane() * block;
  const int threads = lowering.threads();
  std::vector<BufferId> buffers = {dy, index, dx};
  BufferId sums = -1;  // a plane for each thread
  if (lowering.type() == NumberType::kBf16) {
    sums = lowering.AddScratch(threads * x_plane * int64_t{sizeof(float)});
    buffers.push_back(sums);
  }
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelShares(threads, planes, [&](int64_t p, int64_t thread) {
      const T* g = program->ptr<T>(dy) + p * y_plane;
      T* to = program->ptr<T>(dx) + p * x_plane;
      float* sum = sums < 0 ? nullptr : program->ptr<float>(sums) + thread * x_plane;
      if (is_max) {
        kernels.max_pool_gradient(shape, block, g, program->ptr<uint8_t>(index) + p * y_plane, to,
                                  sum);
      } else {
        kernels.avg_pool_gradient(shape, block, g, to, sum);
      }
    });
  };
  lowering.EmitKernels(node, run, buffers);
}

}  // namespace

void LowerRelu(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerTanh(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerSigmoid(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerGelu(Lowering& lowering, const Node& node) {
  LowerElementwise(lowering, node);
}

void LowerReluGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerTanhGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerSigmoidGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerGeluGradient(Lowering& lowering, const Node& node) {
  LowerElementwiseGradient(lowering, node);
}

void LowerMaxPool(Lowering& lowering, const Node& node) {
  LowerPool(lowering, node);
}

void LowerAvgPool(Lowering& lowering, const Node& node) {
  LowerPool(lowering, node);
}

void LowerMaxPoolGradient(Lowering& lowering, const Node& node) {
  LowerPoolGradient(lowering, node);
}

void LowerAvgPoolGradient(Lowering& lowering, const Node& node) {
  LowerPoolGradient(lowering, node);
}

void LowerFlatten(Lowering& lowering, const Node& node) {
  lowering.ShareInput(node, lowering.layout(node.inputs[0]));
}

// Blocks only come from a value that was flattened, and have its shape.
void LowerFlattenGradient(Lowering& lowering, const Node& node) {
  const Layout& home = lowering.layout(node.inputs[0]);
  const Layout plain = PlainLayout(lowering.value(node.outputs[0]).shape).As(home.type);
  lowering.ShareInput(node, home.block > 1 ? home : plain);
}

void LowerAdd(Lowering& lowering, const Node& node) {
  // The layout of the overwritten, or first, input.
  const size_t leader = node.OverwrittenBy(0) > 0 ? 1 : 0;
  const Layout home = lowering.Stored(lowering.layout(node.inputs[leader]));
  lowering.SetLayout(node.outputs[0], home);
  const BufferId a = lowering.In(node.inputs[leader], home);
  const BufferId b = lowering.In(node.inputs[1 - leader], home);
  const BufferId y = lowering.OutputBuffer(node);
  const int64_t elements = lowering.Elements(node.outputs[0]);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelChunks(threads, elements, [&](int64_t begin, int64_t count) {
      kernels.add(program->ptr<T>(a) + begin, program->ptr<T>(b) + begin,
                  program->ptr<T>(y) + begin, count);
    });
  };
  lowering.EmitKernels(node, run, {a, b, y});
}

void LowerGlobalAvgPool(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(node.inputs[0]));
  const Layout y_layout = {x_layout.channels, 1, 1, x_layout.block, lowering.type()};
  lowering.SetLayout(node.outputs[0], y_layout);
  const BufferId x = lowering.In(node.inputs[0], x_layout);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const int64_t planes = lowering.rows() * x_layout.blocks();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const int64_t block = x_layout.block;
    ParallelFor(threads, planes, [&](int64_t p) {
      kernels.mean(x_layout.plane(), block, program->ptr<T>(x) + p * x_layout.plane() * block,
                   program->ptr<T>(y) + p * block);
    });
  };
  lowering.EmitKernels(node, run, {x, y});
}

void LowerGlobalAvgPoolGradient(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(lowering.value(node.outputs[0]).primal));
  const Layout y_layout = {x_layout.channels, 1, 1, x_layout.block, lowering.type()};
  lowering.SetLayout(node.outputs[0], x_layout);
  const BufferId dy = lowering.In(node.inputs[0], y_layout);
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const int64_t planes = lowering.rows() * x_layout.blocks();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const int64_t block = x_layout.block;
    ParallelFor(threads, planes, [&](int64_t p) {
      kernels.mean_gradient(x_layout.plane(), block, program->ptr<T>(dy) + p * block,
                            program->ptr<T>(dx) + p * x_layout.plane() * block);
    });
  };
  lowering.EmitKernels(node, run, {dy, dx});
}

// Each pixel, a block of channels, is copied `scale` times; then so is each line.
void LowerUpsample(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(node.inputs[0]));
  Layout y_layout = lowering.StoredPlain(node.outputs[0]);
  y_layout.block = x_layout.block;
  lowering.SetLayout(node.outputs[0], y_layout);
  const BufferId x = lowering.In(node.inputs[0], x_layout);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const int64_t scale = node.layer<layers::Upsample>().scale;
  const int64_t lines = lowering.rows() * x_layout.blocks() * x_layout.height;
  const int64_t line = x_layout.width * x_layout.block;
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>&) {
    const int64_t block = x_layout.block;
    ParallelFor(threads, lines, [&](int64_t h) {
      const T* from = program->ptr<T>(x) + h * line;
      T* const first = program->ptr<T>(y) + h * scale * line * scale;
      for (int64_t w = 0; w < x_layout.width * scale; ++w) {
        std::copy_n(from + w / scale * block, block, first + w * block);
      }
      for (int64_t i = 1; i < scale; ++i) {
        std::copy_n(first, line * scale, first + i * line * scale);
      }
    });
  };
  lowering.EmitKernels(node, run, {x, y});
}

// Adds up `scale` lines of dy, then neighbours among their sums.
void LowerUpsampleGradient(Lowering& lowering, const Node& node) {
  const Layout x_layout = lowering.Stored(lowering.layout(lowering.value(node.outputs[0]).primal));
  Layout y_layout = lowering.StoredPlain(node.inputs[0]);
  y_layout.block = x_layout.block;
  lowering.SetLayout(node.outputs[0], x_layout);
  const BufferId dy = lowering.In(node.inputs[0], y_layout);
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const int64_t scale = node.layer<layers::Upsample>().scale;
  const int64_t lines = lowering.rows() * x_layout.blocks() * x_layout.height;
  const int64_t line = x_layout.width * x_layout.block;
  const int threads = lowering.threads();
  // The sums of lines, then those of neighbours, of each thread.
  const int64_t scratch_floats = line * scale + line;
  const BufferId scratch = lowering.AddScratch(threads * scratch_floats * int64_t{sizeof(float)});
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    const int64_t block = x_layout.block;
    ParallelShares(threads, lines, [&](int64_t h, int64_t thread) {
      const T* from = program->ptr<T>(dy) + h * scale * line * scale;
      float* const sums = program->ptr<float>(scratch) + thread * scratch_floats;
      float* const pixels = sums + line * scale;
      std::fill_n(sums, scratch_floats, 0.0f);
      for (int64_t i = 0; i < scale; ++i) {
        kernels.accumulate(from + i * line * scale, sums, line * scale);
      }
      for (int64_t w = 0; w < x_layout.width * scale; ++w) {
        for (int64_t lane = 0; lane < block; ++lane) {
          pixels[w / scale * block + lane] += sums[w * block + lane];
        }
      }
      kernels.store(pixels, program->ptr<T>(dx) + h * line, line);
    });
  };
  lowering.EmitKernels(node, run, {dy, dx, scratch});
}

void LowerSoftmaxCrossEntropy(Lowering& lowering, const Node& node) {
  const ValueId logits = node.inputs[0];
  const Layout plain = PlainLayout(lowering.value(logits).shape);
  const int64_t classes = lowering.value(logits).shape.back();
  const BufferId x = lowering.In(logits, lowering.layout(logits).Plain().As(NumberType::kF32));
  lowering.SetLayout(node.outputs[0], plain);
  const BufferId probabilities = lowering.BufferOf(node.outputs[0]);
  const int64_t labels = lowering.rows() * (ElementCount(lowering.value(logits).shape) / classes);
  // Loss of each label, and whether it was right, or nearly: summed up in order, whatever the
  // threads.
  const BufferId judged = lowering.AddScratch(labels * 3 * int64_t{sizeof(double)});
  const double smoothing = node.loss().label_smoothing;
  const int threads = lowering.threads();
  const Kernels<float>* kernels = &BestKernels<float>();
  Program* program = &lowering.program();
  auto run = [=](RunState& state) {
    double* each = program->ptr<double>(judged);
    ParallelFor(threads, labels, [&](int64_t n) {
      const float* from = program->ptr<float>(x) + n * classes;
      float* to = program->ptr<float>(probabilities) + n * classes;
      const int64_t label = state.labels[n];
      float largest;
      float sum;
      kernels->softmax(classes, 1.0f, from, to, &largest, &sum);
      double others = 0;  // sum of the logits, above the largest
      for (int64_t k = 0; smoothing > 0 && k < classes; ++k) {
        others += static_cast<double>(from[k] - largest);
      }
      each[3 * n] = std::log(static_cast<double>(sum)) -
                    (1 - smoothing) * static_cast<double>(from[label] - largest) -
                    smoothing / static_cast<double>(classes) * others;
      // If logits are equal, the first is the prediction.
      const bool is_right =
          from[label] == largest && std::find(from, from + label, largest) == from + label;
      each[3 * n + 1] = is_right ? 1 : 0;
      each[3 * n + 2] = state.counts_top5 && IsInTop(from, classes, label) ? 1 : 0;
    });
    state.loss = 0;
    state.correct = 0;
    state.top5 = 0;
    for (int64_t n = 0; n < labels; ++n) {
      state.loss += each[3 * n];
      state.correct += each[3 * n + 1] > 0 ? 1 : 0;
      state.top5 += each[3 * n + 2] > 0 ? 1 : 0;
    }
    state.loss /= static_cast<double>(labels);
  };
  lowering.EmitCall(node, run, {x, probabilities, judged});
}

void LowerSoftmaxCrossEntropyGradient(Lowering& lowering, const Node& node) {
  const BufferId probabilities = lowering.BufferOf(node.inputs[0]);
  const Layout plain = lowering.layout(node.inputs[0]);
  lowering.SetLayout(node.outputs[0], plain);
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const int64_t classes = lowering.value(node.inputs[0]).shape.back();
  const int64_t labels = lowering.rows() * (plain.elements() / classes);
  const float smoothing = static_cast<float>(node.loss().label_smoothing);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=](RunState& state) {
    const float everywhere = smoothing / static_cast<float>(classes);
    ParallelFor(threads, labels, [&](int64_t n) {
      const float* from = program->ptr<float>(probabilities) + n * classes;
      float* to = program->ptr<float>(dx) + n * classes;
      for (int64_t k = 0; k < classes; ++k) {
        to[k] = (from[k] - everywhere) * state.gradient_scale;
      }
      to[state.labels[n]] -= (1 - smoothing) * state.gradient_scale;
    });
  };
  lowering.EmitCall(node, run, {probabilities, dx});
}

// Values cross to another stage as plain floats, whatever this stage computes in.
void LowerStageOutput(Lowering& lowering, const Node& node) {
  lowering.program().stage_output_block = lowering.layout(node.inputs[0]).block;
  const BufferId x =
      lowering.In(node.inputs[0], lowering.layout(node.inputs[0]).Plain().As(NumberType::kF32));
  const int64_t count = lowering.value(node.inputs[0]).Elements(lowering.rows());
  Program* program = &lowering.program();
  lowering.EmitCall(
      node,
      [=](RunState& state) { std::copy_n(program->ptr<float>(x), count, state.stage_output); },
      {x});
}

void LowerStageOutputGradient(Lowering& lowering, const Node& node) {
  lowering.SetLayout(node.outputs[0], PlainLayout(lowering.value(node.outputs[0]).shape));
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const int64_t count = lowering.value(node.outputs[0]).Elements(lowering.rows());
  Program* program = &lowering.program();
  lowering.EmitCall(node,
                    [=](RunState& state) {
                      std::copy_n(state.stage_output_gradient, count, program->ptr<float>(dx));
                    },
                    {dx});
}

}  // namespace trainyard::engine::cpu
