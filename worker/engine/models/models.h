// Declares the model zoo: functions that build the forward graph of a network of common/networks,
// ending in logits and the mean softmax cross-entropy loss, and say how its parameters start.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/layers/stack.h"
#include "common/networks/networks.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

using networks::AlexnetSpec;
using networks::ConvnetSpec;
using networks::GooglenetSpec;
using networks::Gpt2Spec;
using networks::MlpSpec;
using networks::ResnetSpec;
using networks::Stem;
using networks::VggSpec;
using networks::WideResnetSpec;

// Each returns INVALID_ARGUMENT if there is no such network. If the samples do not fit, the message
// names the layer and the shapes. Parameters start by PyTorch's default if nothing else is said.
absl::StatusOr<Graph> BuildMlp(const MlpSpec& spec);
absl::StatusOr<Graph> BuildConvnet(const ConvnetSpec& spec);
// Convolutions start as N(0, 2 / fan_out).
absl::StatusOr<Graph> BuildResnet(const ResnetSpec& spec);
// Convolutions start as N(0, 2 / fan_out).
absl::StatusOr<Graph> BuildWideResnet(const WideResnetSpec& spec);
absl::StatusOr<Graph> BuildAlexnet(const AlexnetSpec& spec);
// Convolutions start as N(0, 2 / fan_out), linears as N(0, 0.01^2), biases at 0.
absl::StatusOr<Graph> BuildVgg(const VggSpec& spec);
// With the stem kImagenet, convolutions and linears start as N(0, 0.01^2).
absl::StatusOr<Graph> BuildGooglenet(const GooglenetSpec& spec);
// Weights start as N(0, 0.02^2), and those that end a half block as that over the root of the
// number of half blocks; biases start at 0.
absl::StatusOr<Graph> BuildGpt2(const Gpt2Spec& spec);

// A network that a spec spells out, under the names that it gives and with PyTorch's default
// initialisation. INVALID_ARGUMENT (INVALID_SPEC) with everything in which the layers do not fit,
// by paths below `model.layers`.
absl::StatusOr<Graph> BuildLayers(const layers::Stack& stack);

// Builds the graph of any of these networks.
absl::StatusOr<Graph> BuildNetwork(const networks::Network& network);

// Initialises each parameter as its model says, or else by PyTorch's default (Kaiming uniform with
// a = sqrt(5), i.e. U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases; batch norm 1 and 0,
// running mean 0 and variance 1), from a counter-based random stream keyed by (seed, parameter
// name, element): the same on every machine and for any number of devices.
absl::Status InitializeParameters(uint64_t seed, ModelState& executable);

}  // namespace trainyard::engine
