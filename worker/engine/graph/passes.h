// Declares passes over a step graph: pure functions that make it cheaper and keep its numbers. Each
// is tested by running the reference backend with and without it.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "worker/engine/graph/recompute.h"
#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// Says which passes to apply (kPasses describes them). Each can be switched off, to prove that it
// keeps the numbers or to find the one that does not.
struct PassOptions {
  bool fuse_relu = true;
  bool fuse_relu_into_max_pool_gradient = true;
  bool fuse_residual = true;
  bool fuse_gradient_sums = true;
  bool merge_siblings = true;
  bool recompute = false;  // costs time
  bool remove_dead_code = true;
  bool recompute_norms = true;
  bool place_parts = true;
  bool reuse_in_place = true;

  friend bool operator==(const PassOptions&, const PassOptions&) = default;
};

// Fuses conv2d, linear or batch_norm with a relu that is its only reader. With batch_norm the
// relu_gradient goes into batch_norm_gradient too.
StepGraph FuseRelu(StepGraph step);

// Fuses relu, then max_pool: the relu_gradient after max_pool_gradient becomes a mark in the pool's
// index (if a window's maximum is not positive, nothing flows back). This saves a pass over the
// largest tensors, and frees the relu's output after the forward half.
StepGraph FuseReluIntoMaxPoolGradient(StepGraph step);

// Fuses batch_norm, add, relu, which end a residual block, into one node. The node also writes one
// bit for each element that says if its output is positive; batch_norm_gradient reads the bits
// instead of the output and the relu_gradient.
StepGraph FuseResidual(StepGraph step);

// Fuses sums of gradients into the batch_norm_gradient that reads them or that is one of their
// operands. Such a sum is the add of a value that two branches read.
StepGraph FuseGradientSums(StepGraph step);

// Merges 1x1 convolutions of the same value into one, whose readers take slices of its output, and
// does so with their gradients. Sums of gradients are taken in another order: the numbers are equal
// up to rounding.
StepGraph MergeSiblings(StepGraph step);

// Recomputes outputs of batch_norm that only the gradients of convolutions' weights read again,
// with the batch's statistics and to the last bit, instead of keeping them.
StepGraph RecomputeNorms(StepGraph step);

// Lets batch_norm or its gradient write a part of a concat in place if only it makes that part, and
// lets them read a slice in place if only they read it.
StepGraph PlaceParts(StepGraph step);

// Drops nodes, and optional outputs, that do not contribute to anything that is kept.
StepGraph RemoveDeadCode(StepGraph step);

// Lets element-wise nodes write over an input that no later node reads.
StepGraph ReuseInPlace(StepGraph step);

// A pass as programs and people name it.
struct Pass {
  absl::string_view name;  // the name of its option
  bool PassOptions::*option;
  StepGraph (*apply)(StepGraph step);
  absl::string_view sentence;  // a sentence that says what it does
};

// All passes, in the order in which they are applied: first those that fuse nodes, then those that
// clone them, then those that check which node reads a value last.
inline constexpr Pass kPasses[] = {
    {"fuse_residual", &PassOptions::fuse_residual, FuseResidual,
     "the sum and the relu at the end of a residual block become part of its batch norm"},
    {"fuse_relu", &PassOptions::fuse_relu, FuseRelu,
     "a relu becomes part of the convolution, linear layer or batch norm before it"},
    {"merge_siblings", &PassOptions::merge_siblings, MergeSiblings,
     "convolutions 1x1 of the same value become one"},
    {"fuse_gradient_sums", &PassOptions::fuse_gradient_sums, FuseGradientSums,
     "the gradient of a batch norm takes the sums around it"},
    {"fuse_relu_into_max_pool_gradient", &PassOptions::fuse_relu_into_max_pool_gradient,
     FuseReluIntoMaxPoolGradient, "the gradient of a relu becomes a mark in the max pool after it"},
    {"recompute_norms", &PassOptions::recompute_norms, RecomputeNorms,
     "outputs of batch norms are computed again for the gradients instead of kept"},
    {"recompute", &PassOptions::recompute, Recompute,
     "activations are computed again for the gradients instead of kept"},
    {"remove_dead_code", &PassOptions::remove_dead_code, RemoveDeadCode,
     "nodes whose results are not used are dropped"},
    {"place_parts", &PassOptions::place_parts, PlaceParts,
     "parts of a concatenation are written in place, and slices read in place"},
    {"reuse_in_place", &PassOptions::reuse_in_place, ReuseInPlace,
     "element-wise results are written over an input that no later node reads"},
};

StepGraph ApplyPasses(StepGraph step, const PassOptions& options);

}  // namespace trainyard::engine
