// Operation graphs, checked and put in order, and the engines that run them.
#pragma once

#include <cudnn_graph.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/testing/cuda_on_cpu/cudnn/descriptor.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"
#include "tests/testing/cuda_on_cpu/cudnn/tensor.h"

namespace trainyard::cuda_on_cpu::cudnn {

struct Program {
  // Each stands after those whose results it reads.
  std::vector<std::shared_ptr<const Operation>> operations;
  // Each tensor stands once; virtual ones are left out.
  std::vector<TensorSpec> tensors;
  // A plan takes these bytes besides the workspace of its engine.
  int64_t workspace_bytes = 0;
};

// BAD_PARAM for ids with two meanings, for tensors with two origins, for virtual tensors with none,
// and for cycles.
cudnnStatus_t CompileProgram(const Descriptor& graph, std::shared_ptr<const Program>* program);

struct Engine {
  int64_t index;
  int64_t workspace_bytes;
  bool is_deterministic;
  bool can_be_built;
};

// The workspace of a plan.
int64_t WorkspaceBytes(const Program& program, const Engine& engine);
// Returns null for an index that no engine has.
const Engine* FindEngine(int64_t index);
int64_t EngineCount();
// The engines that a heuristic mode offers, best first. Empty for graphs that tests refuse.
std::vector<const Engine*> Offers(const Program& program, cudnnBackendHeurMode_t mode);
// Returns the first convolution of a graph, with what is fused into it, or nothing.
std::optional<ConvolutionShape> ConvolutionOf(const Program& program);
// Returns true if the graph has batch norm around a convolution in a form for which cuDNN has no
// engine.
bool HasUnknownNormFusion(const Program& program);
// Returns true if no engine takes the graph, or a test made it unsupported.
bool IsRefused(const Program& program);

// These finalize the kinds of descriptors other than operations and tensors.
cudnnStatus_t FinalizeGraph(Descriptor* graph);
cudnnStatus_t FinalizeHeuristics(Descriptor* heuristics);
cudnnStatus_t FinalizeEngine(Descriptor* engine);
cudnnStatus_t FinalizeEngineConfig(Descriptor* config);
cudnnStatus_t FinalizePlan(Descriptor* plan);
cudnnStatus_t FinalizeVariantPack(Descriptor* pack);
cudnnStatus_t FinalizeDevice(Descriptor* device);

}  // namespace trainyard::cuda_on_cpu::cudnn
