// Writes out the networks that specs choose by name as stacks of layers, so that the arithmetic of
// common/layers can find their limits. They equal the graphs that the engine builds, layer by
// layer; tests compare both.
#pragma once

#include "common/layers/stack.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::spec {

// Returns the layers of a model, which must have its defaults, or no layers if no model is chosen.
// For gpt2 it returns only one block, since all have the same shapes, and a classifier with a
// weight of its own.
layers::Stack NetworkOf(const v1::ModelSpec& model);

}  // namespace trainyard::spec
