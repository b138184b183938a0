// What the engine's tests share: random batches, compiled executables, gradients by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/build_step.h"
#include "worker/engine/graph/graph.h"

namespace trainyard::engine::testing {

// The graph as autodiff leaves it.
inline constexpr PassOptions kNoPasses = {.fuse_relu = false,
                                          .fuse_relu_into_max_pool_gradient = false,
                                          .fuse_residual = false,
                                          .fuse_gradient_sums = false,
                                          .merge_siblings = false,
                                          .remove_dead_code = false,
                                          .recompute_norms = false,
                                          .place_parts = false,
                                          .reuse_in_place = false};

using Values = std::vector<float>;
using NamedValues = std::map<std::string, Values>;

// The backend that is judged: "cpu", where a program says nothing else before its tests begin.
const std::string& TestedBackend();
void SetTestedBackend(const std::string& name);
// It and the reference, in f32 or in both precisions. The program that judges the CPU judges the
// reference too; others have enough of the backend itself.
std::vector<std::string> TestedAndReference();
std::vector<std::string> AllBackends();

// U(-1, 1), the same for the same seed.
Values RandomValues(uint64_t seed, int64_t count);

struct TestBatch {
  Values inputs;
  std::vector<int32_t> labels;
  int64_t labels_per_row = 1;

  Batch batch() const { return {inputs, labels}; }
  // Rows [begin, end).
  TestBatch Rows(int64_t begin, int64_t end) const;
};
TestBatch RandomBatch(uint64_t seed, const Graph& model, int64_t rows);

// Compiles or fails the test.
std::unique_ptr<Executable> Compile(const std::string& backend, const Graph& model,
                                    const OptimizerSpec& optimizer, const CompileOptions& options);

// Every parameter and running statistic drawn from U(-1, 1), weights scaled by their fan-in;
// weights and variances of batch norms stay positive.
void RandomizeState(uint64_t seed, Executable& executable);
// Copies all state.
void CopyState(const Executable& from, Executable& to);

Values ReadState(const ModelState& executable, const std::string& name);
void WriteState(Executable& executable, const std::string& name, const Values& values);
NamedValues ReadAllState(const Executable& executable);

// The reduction arena in the port's order, and back.
Values ReadReduction(Executable& executable);
void WriteReduction(Executable& executable, const Values& sums);

// The gradients that lie in the reduction arena, by parameter name.
NamedValues Gradients(const Graph& model, Executable& executable);

// |a - b| <= tolerance * max(1, largest |b|) for every element.
void ExpectNear(const Values& a, const Values& b, double tolerance, const std::string& what);
void ExpectNear(const NamedValues& a, const NamedValues& b, double tolerance);

// A network with the ends of residual blocks: with the input, with another norm before or after,
// with what no norm made; and norms before convolutions, whose sums nothing rectifies.
Graph Residuals(int64_t channels);

// Two inception modules, of four numbers of channels, and siblings that no norm follows.
Graph Inceptions(const std::vector<int64_t>& channels);

// The nodes of a graph, a line each.
std::string RenderGraph(const Graph& graph);

}  // namespace trainyard::engine::testing
