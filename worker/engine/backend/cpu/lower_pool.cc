// Lowers pooling and upsampling to our own kernels, plane by plane, in whatever layout the input
// has.
#include <algorithm>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

PoolShape MakePoolShape(const PoolAttributes& pool, const Layout& x, const Layout& y) {
  return {x.height,    x.width,     y.height,     y.width,
          pool.kernel, pool.stride, pool.padding, pool.count_padding};
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
    // Each element takes one byte.
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
  BufferId sums = -1;  // one plane for each thread
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

// Each pixel, a block of channels, is copied `scale` times, and then each line is.
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
  // Each thread has the sums of lines, then those of neighbours.
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

}  // namespace trainyard::engine::cpu
