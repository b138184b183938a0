// Lowers layer_norm and embeddings to our own kernels, over plain layouts.
#include <algorithm>

#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {

void LowerLayerNorm(Lowering& lowering, const Node& node) {
  const Layout plain = lowering.Stored(lowering.layout(node.inputs[0]).Plain());
  const int64_t features = lowering.value(node.inputs[0]).shape.back();
  const int64_t vectors = lowering.rows() * (plain.elements() / features);
  lowering.SetLayout(node.outputs[0], plain);
  for (const size_t statistic : {1, 2}) {
    lowering.SetLayout(node.outputs[statistic],
                       PlainLayout(lowering.value(node.outputs[statistic]).shape));
  }
  const BufferId x = lowering.In(node.inputs[0], plain);
  const float* weight = lowering.Parameter(node.inputs[1]);
  const float* bias = lowering.Parameter(node.inputs[2]);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const BufferId mean = lowering.BufferOf(node.outputs[1]);
  const BufferId inverse = lowering.BufferOf(node.outputs[2]);
  const float eps = static_cast<float>(node.layer<layers::LayerNorm>().eps);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelFor(threads, vectors, [&](int64_t n) {
      kernels.layer_norm(features, eps, program->ptr<T>(x) + n * features, weight, bias,
                         program->ptr<T>(y) + n * features, program->ptr<float>(mean) + n,
                         program->ptr<float>(inverse) + n);
    });
  };
  lowering.EmitKernels(node, run, {x, y, mean, inverse});
}

// The sums run over chunks of features, each in the order of the vectors, whatever the number of
// threads.
void LowerLayerNormGradient(Lowering& lowering, const Node& node) {
  const Layout plain = lowering.Stored(lowering.layout(node.inputs[1]).Plain());
  const int64_t features = lowering.value(node.inputs[1]).shape.back();
  const int64_t vectors = lowering.rows() * (plain.elements() / features);
  const BufferId dy = lowering.In(node.inputs[0], plain);
  const BufferId x = lowering.In(node.inputs[1], plain);
  const float* weight = lowering.Parameter(node.inputs[2]);
  const BufferId mean = lowering.BufferOf(node.inputs[3]);
  const BufferId inverse = lowering.BufferOf(node.inputs[4]);
  std::vector<BufferId> buffers = {dy, x, mean, inverse};
  BufferId dx = -1;
  if (node.outputs[0] != kNoValue) {
    lowering.SetLayout(node.outputs[0], plain);
    dx = lowering.OutputBuffer(node);
    buffers.push_back(dx);
  }
  float* dweight = lowering.GradientSums(node.outputs[1]);
  float* dbias = lowering.GradientSums(node.outputs[2]);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    const T* g = program->ptr<T>(dy);
    const T* from = program->ptr<T>(x);
    const float* means = program->ptr<float>(mean);
    const float* inverses = program->ptr<float>(inverse);
    ParallelChunks(threads, features, [&](int64_t begin, int64_t count) {
      if (!state.accumulate) {
        std::fill_n(dweight + begin, count, 0.0f);
        std::fill_n(dbias + begin, count, 0.0f);
      }
      kernels.layer_norm_sums(vectors, features, count, means, inverses, g + begin, from + begin,
                              dweight + begin, dbias + begin);
    });
    if (dx < 0) {
      return;
    }
    ParallelFor(threads, vectors, [&](int64_t n) {
      kernels.layer_norm_gradient(features, means[n], inverses[n], g + n * features,
                                  from + n * features, weight, program->ptr<T>(dx) + n * features);
    });
  };
  lowering.EmitKernels(node, run, buffers);
}

void LowerEmbedding(Lowering& lowering, const Node& node) {
  const Shape& shape = lowering.value(node.outputs[0]).shape;
  lowering.SetLayout(node.outputs[0], lowering.Stored(PlainLayout(shape)));
  const int64_t width = shape[1];
  const int64_t tokens = lowering.rows() * shape[0];
  const BufferId x = lowering.BufferOf(node.inputs[0]);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const float* weight = lowering.Parameter(node.inputs[1]);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelFor(threads, tokens, [&](int64_t n) {
      const auto token = static_cast<int64_t>(program->ptr<float>(x)[n]);
      kernels.store(weight + token * width, program->ptr<T>(y) + n * width, width);
    });
  };
  lowering.EmitKernels(node, run, {x, y});
}

// A token may occur twice, so threads share the columns and not the tokens.
void LowerEmbeddingGradient(Lowering& lowering, const Node& node) {
  const Shape& shape = lowering.value(node.inputs[0]).shape;
  const int64_t width = shape[1];
  const int64_t tokens = lowering.rows() * shape[0];
  const BufferId dy = lowering.In(node.inputs[0], lowering.StoredPlain(node.inputs[0]));
  const BufferId x = lowering.BufferOf(node.inputs[1]);
  const ReductionEntry entry = lowering.GradientEntry(node.outputs[0]);
  float* sums = lowering.GradientSums(node.outputs[0]);
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    if (!state.accumulate) {
      ParallelChunks(threads, entry.count,
                     [&](int64_t begin, int64_t count) { std::fill_n(sums + begin, count, 0.0f); });
    }
    ParallelChunks(threads, width, [&](int64_t begin, int64_t count) {
      for (int64_t n = 0; n < tokens; ++n) {
        const auto token = static_cast<int64_t>(program->ptr<float>(x)[n]);
        float* sum = sums + token * width + begin;
        kernels.accumulate(program->ptr<T>(dy) + n * width + begin, sum, count);
      }
    });
  };
  lowering.EmitKernels(node, run, {dy, x});
}

void LowerPositionEmbedding(Lowering& lowering, const Node& node) {
  const Layout plain = lowering.StoredPlain(node.outputs[0]);
  lowering.SetLayout(node.outputs[0], plain);
  const BufferId x = lowering.In(node.inputs[0], plain);
  const BufferId y = lowering.OutputBuffer(node);
  const float* weight = lowering.Parameter(node.inputs[1]);
  const int64_t rows = lowering.rows();
  const int64_t count = plain.elements();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelFor(threads, rows, [&](int64_t n) {
      kernels.add_floats(program->ptr<T>(x) + n * count, weight, program->ptr<T>(y) + n * count,
                         count);
    });
  };
  lowering.EmitKernels(node, run, {x, y});
}

void LowerPositionEmbeddingGradient(Lowering& lowering, const Node& node) {
  const Layout plain = lowering.StoredPlain(node.inputs[0]);
  const BufferId dy = lowering.In(node.inputs[0], plain);
  const ReductionEntry entry = lowering.GradientEntry(node.outputs[0]);
  float* sums = lowering.GradientSums(node.outputs[0]);
  const int64_t rows = lowering.rows();
  // The part of the table in use, which may have more positions.
  const int64_t used = plain.elements();
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState& state, const Kernels<T>& kernels) {
    if (!state.accumulate) {
      std::fill_n(sums, entry.count, 0.0f);
    }
    ParallelChunks(threads, used, [&](int64_t begin, int64_t count) {
      for (int64_t n = 0; n < rows; ++n) {
        kernels.accumulate(program->ptr<T>(dy) + n * used + begin, sums + begin, count);
      }
    });
  };
  lowering.EmitKernels(node, run, {dy});
}

}  // namespace trainyard::engine::cpu
