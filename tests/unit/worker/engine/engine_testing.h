// Helpers that the engine's tests share: random batches, compiled executables, gradients by name.
#pragma once

#include <cstdint>
#include <functional>
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

// Returns the backend that is tested: "cpu", unless a program sets another before its tests begin.
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

// Compiles the network, or fails the test.
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

// Copies bytes between two places in the memory of devices, and returns when they are there.
using DeviceCopy = std::function<void(void* to, const void* from, size_t bytes)>;
// A program whose backend keeps values on a device sets it before its tests begin.
void SetDeviceCopy(DeviceCopy copy);
// Copies values at a boundary of `from` to one of `to`, wherever both lie.
void CopyBoundary(Executable& from, absl::Span<const float> values, Executable& to,
                  absl::Span<float> place);

// These functions read and write the reduction arena in the port's order.
Values ReadReduction(Executable& executable);
void WriteReduction(Executable& executable, const Values& sums);

// The gradients that lie in the reduction arena, by parameter name.
NamedValues Gradients(const Graph& model, Executable& executable);

// Returns the largest |a - b| / max(1, largest |b|) of all values of the same names.
double LargestError(const NamedValues& a, const NamedValues& b);

// Expects |a - b| <= tolerance * max(1, largest |b|) for every element.
void ExpectNear(const Values& a, const Values& b, double tolerance, const std::string& what);
void ExpectNear(const NamedValues& a, const NamedValues& b, double tolerance);

// Returns a network with the ends of residual blocks: added to the input, to another norm before or
// after, or to a value that no norm made; and with norms before convolutions whose sums are not
// rectified.
Graph Residuals(int64_t channels);

// Two inception modules, of four numbers of channels, and siblings that no norm follows.
Graph Inceptions(const std::vector<int64_t>& channels);

// The nodes of a graph, a line each.
std::string RenderGraph(const Graph& graph);

}  // namespace trainyard::engine::testing
