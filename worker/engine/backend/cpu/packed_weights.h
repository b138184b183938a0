// Keeps weights in the formats that the kernels need, made from the plain parameters whenever those
// have changed.
//
// The parameters, and their gradients in the reduction arena, stay in PyTorch's layout: so the
// arena is the same on ranks with other instruction sets or backends, and a checkpoint is a copy.
// Packing a convolution's weights costs well under 1 % of a step.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "dnnl.hpp"
#include "worker/engine/backend/cpu/kernels_winograd.h"
#include "worker/engine/graph/memory_plan.h"

namespace trainyard::engine::cpu {

class PackedWeights {
 public:
  PackedWeights(const dnnl::engine& engine, Backing backing) : engine_(engine), backing_(backing) {}

  // Returns memory that holds the parameters, one after the other (together described by `plain`),
  // as `wanted`. This is the parameter itself if there is only one and the formats are equal, and
  // otherwise a copy that Refresh keeps up to date, whose number is added to `used`.
  dnnl::memory Get(const std::vector<absl::Span<float>>& parameters,
                   const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
                   std::vector<size_t>& used);

  // Returns the weights of a convolution [O, I, 3, 3] as `kernels` need them, for it or (`turned`)
  // for the gradient of its input. They are kept up to date as well.
  const float* Transformed(absl::Span<float> weights, const WinogradShape& shape, bool turned,
                           const WinogradKernels& kernels, std::vector<size_t>& used);

  // Notes that the parameters were written.
  void Invalidate() { ++version_; }
  // Brings the copies with these numbers up to date. A training step needs none of an evaluation's.
  void Refresh(const std::vector<size_t>& used, dnnl::stream& stream);

  int64_t bytes() const;

 private:
  struct Entry {
    std::vector<absl::Span<float>> parameters;
    dnnl::memory::desc desc;
    AlignedBuffer gathered;  // for several parameters
    AlignedBuffer buffer;    // used if `wanted` is not plain
    dnnl::memory from, to;
    dnnl::reorder pack;
    // If `kernels` are given, these transform the parameter instead of oneDNN.
    const WinogradKernels* kernels = nullptr;
    WinogradShape shape = {};
    bool turned = false;
    int64_t version = 0;  // of the parameters at the time of packing
  };

  dnnl::engine engine_;
  const Backing backing_;
  std::vector<std::unique_ptr<Entry>> entries_;
  int64_t version_ = 1;  // of the parameters
};

}  // namespace trainyard::engine::cpu
