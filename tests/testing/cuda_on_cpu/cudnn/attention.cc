// Attention as one operation: softmax(scale q k^T) v, without a mask, and its gradients.
//
// q and o are [batch, heads, positions, width]; k and v are [batch, key heads, key positions,
// width]. Heads share keys in equal groups. stats [batch, heads, positions, 1] is the log of the
// sum of the exponentials of the scaled scores. For the formulas see Dao et al., "FlashAttention"
// (2022), appendix B.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

struct Attention {
  TensorSpec q, k, v, o;
  std::optional<TensorSpec> stats, scale;
  TensorSpec dy, dq, dk, dv;  // of the gradient
  int64_t heads = 0, group = 1, positions = 0, key_positions = 0, width = 0, value_width = 0;
};

double Dot(const float* left, const float* right, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += static_cast<double>(left[i]) * static_cast<double>(right[i]);
  }
  return sum;
}

// The matrix of keys that belongs to matrix `head` of queries, over the whole batch.
int64_t KeysOf(const Attention& a, int64_t head) {
  return head / a.heads * (a.heads / a.group) + head % a.heads / a.group;
}

void RunForward(const Attention& a, Memory* memory) {
  const std::vector<float> q = memory->Load(a.q), k = memory->Load(a.k), v = memory->Load(a.v);
  const double scale = a.scale ? memory->Scalar(*a.scale) : 1.0;
  std::vector<float> o(static_cast<size_t>(a.o.elements()));
  std::vector<float> stats(static_cast<size_t>(a.q.elements() / a.width));
  std::vector<double> weights(static_cast<size_t>(a.key_positions));
  std::vector<double> row(static_cast<size_t>(a.value_width));
  for (size_t i = 0; i < stats.size(); ++i) {
    const auto query = static_cast<int64_t>(i);
    const int64_t first = KeysOf(a, query / a.positions) * a.key_positions;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < a.key_positions; ++j) {
      double& score = weights[static_cast<size_t>(j)];
      score = scale * Dot(q.data() + query * a.width, k.data() + (first + j) * a.width, a.width);
      largest = std::max(largest, score);
    }
    double sum = 0;
    for (double& weight : weights) {
      weight = std::exp(weight - largest);
      sum += weight;
    }
    stats[i] = static_cast<float>(largest + std::log(sum));
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t j = 0; j < a.key_positions; ++j) {
      for (int64_t d = 0; d < a.value_width; ++d) {
        row[static_cast<size_t>(d)] +=
            weights[static_cast<size_t>(j)] / sum *
            static_cast<double>(v[static_cast<size_t>((first + j) * a.value_width + d)]);
      }
    }
    std::transform(row.begin(), row.end(), o.begin() + query * a.value_width,
                   [](double value) { return static_cast<float>(value); });
  }
  memory->Store(a.o, o);
  if (a.stats) {
    memory->Store(*a.stats, stats);
  }
}

void AddScaled(double factor, const float* values, int64_t count, double* sums) {
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += factor * static_cast<double>(values[i]);
  }
}

void RunBackward(const Attention& a, Memory* memory) {
  const std::vector<float> q = memory->Load(a.q), k = memory->Load(a.k), v = memory->Load(a.v);
  const std::vector<float> o = memory->Load(a.o), dy = memory->Load(a.dy);
  const std::vector<float> stats = memory->Load(*a.stats);
  const double scale = a.scale ? memory->Scalar(*a.scale) : 1.0;
  std::vector<double> dq(q.size(), 0.0), dk(k.size(), 0.0), dv(v.size(), 0.0);
  for (size_t i = 0; i < stats.size(); ++i) {
    const auto query = static_cast<int64_t>(i);
    const int64_t first = KeysOf(a, query / a.positions) * a.key_positions;
    const float* q_row = q.data() + query * a.width;
    const float* dy_row = dy.data() + query * a.value_width;
    const double correction = Dot(dy_row, o.data() + query * a.value_width, a.value_width);
    for (int64_t j = first; j < first + a.key_positions; ++j) {
      const double score = scale * Dot(q_row, k.data() + j * a.width, a.width);
      const double weight = std::exp(score - static_cast<double>(stats[i]));
      const double dweight = Dot(dy_row, v.data() + j * a.value_width, a.value_width);
      const double dscore = scale * weight * (dweight - correction);
      AddScaled(weight, dy_row, a.value_width, dv.data() + j * a.value_width);
      AddScaled(dscore, k.data() + j * a.width, a.width, dq.data() + query * a.width);
      AddScaled(dscore, q_row, a.width, dk.data() + j * a.width);
    }
  }
  memory->Store(a.dq, std::vector<float>(dq.begin(), dq.end()));
  memory->Store(a.dk, std::vector<float>(dk.begin(), dk.end()));
  memory->Store(a.dv, std::vector<float>(dv.begin(), dv.end()));
}

cudnnStatus_t CheckShapes(Attention* a) {
  const auto& q = a->q.dims;
  const auto& k = a->k.dims;
  const auto& v = a->v.dims;
  bool fits = q.size() == 4 && k.size() == 4 && v.size() == 4;
  fits = fits && k[0] == q[0] && v[0] == q[0] && k[1] == v[1] && q[1] % k[1] == 0 && k[2] == v[2] &&
         k[3] == q[3];
  fits = fits && a->o.dims == std::vector<int64_t>{q[0], q[1], q[2], v[3]};
  if (fits && a->stats) {
    fits = a->stats->dims == std::vector<int64_t>{q[0], q[1], q[2], 1};
  }
  if (fits && a->scale) {
    fits = a->scale->elements() == 1;
  }
  TY_CUDNN_TRY(
      ExpectShape(fits, absl::StrCat("attention of q ", ShapeText(q), ", k ", ShapeText(k), ", v ",
                                     ShapeText(v), " into ", ShapeText(a->o.dims))));
  a->heads = q[1];
  a->group = q[1] / k[1];
  a->positions = q[2];
  a->key_positions = k[2];
  a->width = q[3];
  a->value_width = v[3];
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t CompileAttentionForward(const Descriptor& descriptor, Operation* operation) {
  Attention a;
  a.q = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
  a.k = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
  a.v = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
  a.o = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
  a.stats = FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC);
  a.scale = FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);
  TY_CUDNN_TRY(CheckShapes(&a));
  operation->inputs = {a.q, a.k, a.v};
  operation->outputs = {a.o};
  if (a.scale) {
    operation->inputs.push_back(*a.scale);
  }
  if (a.stats) {
    operation->outputs.push_back(*a.stats);
  }
  operation->run = [a = std::make_shared<const Attention>(a)](Memory* memory) {
    RunForward(*a, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CompileAttentionBackward(const Descriptor& descriptor, Operation* operation) {
  Attention a;
  a.q = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC);
  a.k = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC);
  a.v = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC);
  a.o = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC);
  a.stats = FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC);
  a.scale = FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC);
  a.dy = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC);
  a.dq = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC);
  a.dk = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC);
  a.dv = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC);
  TY_CUDNN_TRY(CheckShapes(&a));
  TY_CUDNN_TRY(ExpectShape(a.dy.dims == a.o.dims && a.dq.dims == a.q.dims &&
                               a.dk.dims == a.k.dims && a.dv.dims == a.v.dims,
                           "attention: gradients differ in shape from what they are of"));
  operation->inputs = {a.q, a.k, a.v, a.o, *a.stats, a.dy};
  operation->outputs = {a.dq, a.dk, a.dv};
  if (a.scale) {
    operation->inputs.push_back(*a.scale);
  }
  operation->run = [a = std::make_shared<const Attention>(a)](Memory* memory) {
    RunBackward(*a, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
