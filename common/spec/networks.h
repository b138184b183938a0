// The networks that specs choose by name, written out as stacks of layers, so that the arithmetic
// of common/layers tells what they can take. Layer by layer they are the graphs that the engine
// builds; tests compare both.
#pragma once

#include "common/layers/stack.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::spec {

// The layers of a model that has its defaults; none where no model is chosen. Of gpt2 there is one
// block, since all have the same shapes, and a classifier with a weight of its own.
layers::Stack NetworkOf(const v1::ModelSpec& model);

}  // namespace trainyard::spec
