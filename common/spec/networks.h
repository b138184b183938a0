// Converts the model of a spec to the network of common/networks that it chooses.
#pragma once

#include "common/networks/networks.h"
#include "trainyard/v1/training.pb.h"

namespace trainyard::spec {

// `model` must have its defaults. If no model is chosen, the network is a stack without layers.
networks::Network NetworkOf(const v1::ModelSpec& model);

}  // namespace trainyard::spec
