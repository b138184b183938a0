// Computes attention by oneDNN's matrix products and our softmax, a block of queries at a time. So
// the scores of a head are never all in memory, and keys behind the block are not touched. It
// computes in floats whatever the type of activations is: a head in bf16 is unpacked first.
#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// This is enough queries for products to pay off, and few enough that a block of scores stays in
// the cache.
constexpr int64_t kQueryBlock = 64;

// C = alpha op(A) op(B) + beta C, row-major, with C [m, n].
void Multiply(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
              int64_t a_stride, const float* b, int64_t b_stride, float beta, float* c,
              int64_t c_stride) {
  const dnnl::status status = dnnl::sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, a_stride, b,
                                          b_stride, beta, c, c_stride);
  TY_CHECK(status == dnnl::status::success);
}

// Sizes of one head, and its blocks of queries.
struct Heads {
  const Kernels<float>* kernels;
  int64_t positions, heads, width;  // T, H, D
  float scale;                      // 1 / sqrt(D)

  Heads(const Shape& x, int64_t count)
      : kernels(&BestKernels<float>()),
        positions(x[0]),
        heads(count),
        width(x[1] / 3 / count),
        scale(1.0f / std::sqrt(static_cast<float>(width))) {}

  // The memory of one head, into which it is unpacked.
  Heads Unpacked() const {
    Heads one = *this;
    one.heads = 1;
    return one;
  }
  // Return the floats of an unpacked head's x, and of its y.
  int64_t x_floats() const { return positions * 3 * width; }
  int64_t y_floats() const { return positions * width; }

  int64_t columns() const { return heads * width; }
  int64_t stride() const { return 3 * columns(); }  // of x
  int64_t blocks() const { return (positions + kQueryBlock - 1) / kQueryBlock; }
  // Returns the floats of one block of scores.
  int64_t scores() const { return std::min(kQueryBlock, positions) * positions; }
  int64_t begin(int64_t block) const { return block * kQueryBlock; }
  int64_t end(int64_t block) const { return std::min(positions, (block + 1) * kQueryBlock); }
  // The queries of head `index % heads` of row `index / heads` in x. Keys and values are columns()
  // and 2 columns() behind them.
  int64_t x_offset(int64_t index) const {
    return index / heads * positions * stride() + index % heads * width;
  }
  int64_t y_offset(int64_t index) const {
    return index / heads * positions * columns() + index % heads * width;
  }

  // scores[t - begin, s] = a_t b_s for the queries t of a block and all keys s up to its last one.
  void Scores(int64_t block, const float* a, int64_t a_stride, const float* b,
              float* scores) const {
    Multiply('N', 'T', end(block) - begin(block), end(block), width, a + begin(block) * a_stride,
             a_stride, b, stride(), 0.0f, scores, positions);
  }

  // Computes x, y and logsum of one head.
  void Forward(const float* x, float* y, float* logsum, float* p) const {
    const float* values = x + 2 * columns();
    for (int64_t block = 0; block < blocks(); ++block) {
      Scores(block, x, stride(), x + columns(), p);
      for (int64_t t = begin(block); t < end(block); ++t) {
        float* row = p + (t - begin(block)) * positions;
        float largest;
        float sum;
        kernels->softmax(t + 1, scale, row, row, &largest, &sum);
        logsum[t] = largest + std::log(sum);
        std::fill(row + t + 1, row + end(block), 0.0f);
      }
      Multiply('N', 'N', end(block) - begin(block), width, end(block), p, positions, values,
               stride(), 0.0f, y + begin(block) * columns(), columns());
    }
  }

  // The gradients of queries, keys and values lie in dx as they do in x. The blocks are computed
  // from the last one, which reaches all keys and so sets their gradients, to the first; all but
  // the last one add.
  void Backward(const float* dy, const float* x, const float* logsum, float* dx, float* p,
                float* dp) const {
    const float* keys = x + columns();
    const float* values = x + 2 * columns();
    for (int64_t block = blocks() - 1; block >= 0; --block) {
      const int64_t first = begin(block);
      const int64_t queries = end(block) - first;
      const float beta = block == blocks() - 1 ? 0.0f : 1.0f;
      Scores(block, x, stride(), keys, p);
      Scores(block, dy, columns(), values, dp);
      for (int64_t t = first; t < end(block); ++t) {
        float* row = p + (t - first) * positions;
        kernels->exponential(t + 1, scale, logsum[t], row, row);
        std::fill(row + t + 1, row + end(block), 0.0f);
      }
      Multiply('T', 'N', end(block), width, queries, p, positions, dy + first * columns(),
               columns(), beta, dx + 2 * columns(), stride());
      for (int64_t t = first; t < end(block); ++t) {
        float* row = dp + (t - first) * positions;
        kernels->softmax_gradient(t + 1, scale, p + (t - first) * positions, row, row);
        std::fill(row + t + 1, row + end(block), 0.0f);
      }
      Multiply('N', 'N', queries, width, end(block), dp, positions, keys, stride(), 0.0f,
               dx + first * stride(), stride());
      Multiply('T', 'N', end(block), width, queries, dp, positions, x + first * stride(), stride(),
               beta, dx + columns(), stride());
    }
  }
};

// Copies from and to the rows of a head, `parts` times `width` columns, `columns` apart.
void Unpack(const Kernels<Bf16>& kernels, const Heads& heads, int64_t parts, const Bf16* from,
            float* to) {
  for (int64_t i = 0; i < heads.positions * parts; ++i) {
    kernels.load(from + i * heads.columns(), to + i * heads.width, heads.width);
  }
}

void Pack(const Kernels<Bf16>& kernels, const Heads& heads, int64_t parts, const float* from,
          Bf16* to) {
  for (int64_t i = 0; i < heads.positions * parts; ++i) {
    kernels.store(from + i * heads.width, to + i * heads.columns(), heads.width);
  }
}

void Forward(const Kernels<float>&, const Heads& heads, const float* x, float* y, float* logsum,
             float* scratch) {
  heads.Forward(x, y, logsum, scratch);
}

void Forward(const Kernels<Bf16>& kernels, const Heads& heads, const Bf16* x, Bf16* y,
             float* logsum, float* scratch) {
  float* const x_floats = scratch + heads.scores();
  float* const y_floats = x_floats + heads.x_floats();
  Unpack(kernels, heads, 3, x, x_floats);
  heads.Unpacked().Forward(x_floats, y_floats, logsum, scratch);
  Pack(kernels, heads, 1, y_floats, y);
}

void Backward(const Kernels<float>&, const Heads& heads, const float* dy, const float* x,
              const float* logsum, float* dx, float* scratch) {
  heads.Backward(dy, x, logsum, dx, scratch, scratch + heads.scores());
}

void Backward(const Kernels<Bf16>& kernels, const Heads& heads, const Bf16* dy, const Bf16* x,
              const float* logsum, Bf16* dx, float* scratch) {
  float* const x_floats = scratch + 2 * heads.scores();
  float* const dx_floats = x_floats + heads.x_floats();
  float* const dy_floats = dx_floats + heads.x_floats();
  Unpack(kernels, heads, 3, x, x_floats);
  Unpack(kernels, heads, 1, dy, dy_floats);
  heads.Unpacked().Backward(dy_floats, x_floats, logsum, dx_floats, scratch,
                            scratch + heads.scores());
  Pack(kernels, heads, 3, dx_floats, dx);
}

}  // namespace

void LowerAttention(Lowering& lowering, const Node& node) {
  const Heads heads(lowering.value(node.inputs[0]).shape, node.layer<layers::Attention>().heads);
  lowering.SetLayout(node.outputs[0], lowering.StoredPlain(node.outputs[0]));
  lowering.SetLayout(node.outputs[1], PlainLayout(lowering.value(node.outputs[1]).shape));
  const BufferId x = lowering.In(node.inputs[0], lowering.StoredPlain(node.inputs[0]));
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const BufferId logsum = lowering.BufferOf(node.outputs[1]);
  const bool is_unpacked = lowering.type() == NumberType::kBf16;
  const int64_t share = heads.scores() + (is_unpacked ? heads.x_floats() + heads.y_floats() : 0);
  const BufferId scratch = lowering.AddScratch(lowering.threads() * share * int64_t{sizeof(float)});
  const int64_t count = lowering.rows() * heads.heads;
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelShares(threads, count, [&](int64_t index, int64_t thread) {
      Forward(kernels, heads, program->ptr<T>(x) + heads.x_offset(index),
              program->ptr<T>(y) + heads.y_offset(index),
              program->ptr<float>(logsum) + index * heads.positions,
              program->ptr<float>(scratch) + thread * share);
    });
  };
  lowering.EmitKernels(node, run, {x, y, logsum, scratch});
}

void LowerAttentionGradient(Lowering& lowering, const Node& node) {
  const Heads heads(lowering.value(node.inputs[1]).shape, node.layer<layers::Attention>().heads);
  const Layout x_layout = lowering.StoredPlain(node.inputs[1]);
  lowering.SetLayout(node.outputs[0], x_layout);
  const BufferId dy = lowering.In(node.inputs[0], lowering.StoredPlain(node.inputs[0]));
  const BufferId x = lowering.In(node.inputs[1], x_layout);
  const BufferId logsum = lowering.BufferOf(node.inputs[2]);
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const bool is_unpacked = lowering.type() == NumberType::kBf16;
  const int64_t share =
      2 * heads.scores() + (is_unpacked ? 2 * heads.x_floats() + heads.y_floats() : 0);
  const BufferId scratch = lowering.AddScratch(lowering.threads() * share * int64_t{sizeof(float)});
  const int64_t count = lowering.rows() * heads.heads;
  const int threads = lowering.threads();
  Program* program = &lowering.program();
  auto run = [=]<class T>(RunState&, const Kernels<T>& kernels) {
    ParallelShares(threads, count, [&](int64_t index, int64_t thread) {
      Backward(kernels, heads, program->ptr<T>(dy) + heads.y_offset(index),
               program->ptr<T>(x) + heads.x_offset(index),
               program->ptr<float>(logsum) + index * heads.positions,
               program->ptr<T>(dx) + heads.x_offset(index),
               program->ptr<float>(scratch) + thread * share);
    });
  };
  lowering.EmitKernels(node, run, {dy, x, logsum, dx, scratch});
}

}  // namespace trainyard::engine::cpu
