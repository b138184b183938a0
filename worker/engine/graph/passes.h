// Passes over a step graph: pure functions that make it cheaper and keep its numbers. Each is
// proven by running the reference backend with and without it.
#pragma once

#include <vector>

#include "worker/engine/graph/step_graph.h"

namespace trainyard::engine {

// conv2d, linear or batch_norm followed by a relu that alone uses it become one node; with
// batch_norm the relu_gradient goes into batch_norm_gradient too.
StepGraph FuseRelu(StepGraph step);

// relu, then max_pool: the relu_gradient after max_pool_gradient becomes a mark in the pool's index
// (where a window's maximum is not positive, nothing flows back). Saves a pass over the largest
// tensors, and frees the relu's output after the forward half.
StepGraph FuseReluIntoMaxPoolGradient(StepGraph step);

// batch_norm, add, relu: the end of a residual block becomes one node, which also tells in one bit
// an element where its output is positive; batch_norm_gradient reads the bits in place of the
// output and of the relu_gradient.
StepGraph FuseResidual(StepGraph step);

// Sums of gradients that batch_norm_gradient reads, or that it would be an operand of, are taken by
// it: the add of a value that two branches read.
StepGraph FuseGradientSums(StepGraph step);

// Convolutions 1x1 of the same value become one, whose output the readers take slices of; so do
// their gradients. Sums of gradients are taken in another order: equal numbers up to rounding.
StepGraph MergeSiblings(StepGraph step);

// Outputs of batch_norm that only the gradients of convolutions' weights read again are not kept,
// but computed once more, with the batch's statistics and to the last bit.
StepGraph RecomputeNorms(StepGraph step);

// Where batch_norm or its gradient alone makes a part of a concat, it may write it in place; where
// they alone read a slice, they may read it in place.
StepGraph PlaceParts(StepGraph step);

// Drops nodes, and optional outputs, that lead to nothing kept.
StepGraph RemoveDeadCode(StepGraph step);

// Lets element-wise nodes write over an input that nobody reads later.
StepGraph ReuseInPlace(StepGraph step);

StepGraph ApplyPasses(StepGraph step, const PassOptions& options);

// For each value the one whose memory it shares: of flatten its input, in place the overwritten
// one, else itself.
std::vector<ValueId> SharedStorage(const Graph& graph);

}  // namespace trainyard::engine
