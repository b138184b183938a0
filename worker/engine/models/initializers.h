// Declares initialisations that models have in common. They replace those of a graph that has been
// built.
#pragma once

#include "absl/strings/string_view.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine {

// Initialises weights of convolutions as N(0, 2 / fan_out), fan_out = out_channels * kernel area
// (He et al. 2015, "Delving deep into rectifiers", eq. 14).
void InitializeConvolutionsByFanOut(Graph& graph);
// Initialises weights of convolutions as N(0, stddev^2).
void InitializeConvolutions(Graph& graph, double stddev);
// Initialises weights of linears as N(0, stddev^2), if the name of the layer ends with `suffix`.
void InitializeLinears(Graph& graph, double stddev, absl::string_view suffix = "");
// Initialises the weights of tokens and positions.
void InitializeEmbeddings(Graph& graph, double stddev);
// Initialises the biases of convolutions and linears.
void InitializeBiases(Graph& graph, double value);

}  // namespace trainyard::engine
