// Implements the functions of the runtime that instantiate and launch graphs.
#include <utility>

#include "tests/testing/cuda_on_cpu/append.h"
#include "tests/testing/cuda_on_cpu/capture.h"
#include "tests/testing/cuda_on_cpu/graph.h"
#include "tests/testing/cuda_on_cpu/machine.h"

namespace trainyard::cuda_on_cpu {
namespace {

std::shared_ptr<const GraphPlan> MakePlan(const CUgraph_st& graph) {
  auto plan = std::make_shared<GraphPlan>();
  plan->nodes.resize(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    GraphPlan::Node& planned = plan->nodes[node->index];
    planned.work = node->operation.work;
    planned.after_count = node->after.size();
    plan->may_block = plan->may_block || node->operation.may_block;
    for (const CUgraphNode_st* earlier : node->after) {
      plan->nodes[earlier->index].before.push_back(node->index);
    }
  }
  return plan;
}

GraphShape ShapeOf(const GraphPlan& plan) {
  GraphShape shape = {.nodes = static_cast<int64_t>(plan.nodes.size())};
  for (const GraphPlan::Node& node : plan.nodes) {
    shape.forks += node.before.size() > 1 ? 1 : 0;
    shape.joins += node.after_count > 1 ? 1 : 0;
  }
  return shape;
}

cudaError_t Launch(Machine& machine, Lock& lock, CUgraphExec_st* exec, CUstream_st* stream) {
  if (exec == nullptr || stream == nullptr) {
    return cudaErrorInvalidResourceHandle;
  }
  if (stream->capture != nullptr) {
    // It is a node of the outer graph, which runs the nodes of the inner one in an order of its
    // own.
    return Append(machine, stream,
                  {.type = cudaGraphNodeTypeGraph,
                   .work =
                       [plan = exec->plan, seed = machine.NextSeed()] {
                         Random random(seed);
                         GraphRun run(plan);
                         bool is_last = false;
                         while (!is_last) {
                           const auto& work = run.Draw(random);
                           if (work) {
                             work();
                           }
                           is_last = run.Ran();
                         }
                       },
                   .may_block = exec->plan->may_block},
                  lock);
  }
  auto completion = std::make_shared<Completion>(stream->device);
  std::shared_ptr<Completion> before = std::exchange(exec->last_launch, completion);
  return Append(machine, stream,
                {.type = cudaGraphNodeTypeGraph,
                 .work = nullptr,
                 .may_block = exec->plan->may_block,
                 .waits_for = std::move(before),
                 .completes = std::move(completion),
                 .graph = std::make_shared<GraphRun>(exec->plan)},
                lock);
}

}  // namespace

GraphShape LastGraphShape() {
  Machine& machine = Machine::Get();
  const Lock lock(machine.mutex);
  return machine.last_graph;
}

}  // namespace trainyard::cuda_on_cpu

using trainyard::cuda_on_cpu::Call;
using trainyard::cuda_on_cpu::Lock;
using trainyard::cuda_on_cpu::Machine;

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return Call([&](Machine& machine, Lock&) {
    if (exec == nullptr || graph == nullptr) {
      return cudaErrorInvalidValue;
    }
    *exec = new CUgraphExec_st{trainyard::cuda_on_cpu::MakePlan(*graph), nullptr};
    machine.last_graph = trainyard::cuda_on_cpu::ShapeOf(*(*exec)->plan);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return Call([&](Machine& machine, Lock&) {
    return exec == nullptr || machine.Resolve(stream) == nullptr ? cudaErrorInvalidResourceHandle
                                                                 : cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return Call([&](Machine& machine, Lock& lock) {
    return trainyard::cuda_on_cpu::Launch(machine, lock, exec, machine.Resolve(stream));
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const cudaError_t error =
      Call([&](Machine&, Lock&) { return graph == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
  if (error == cudaSuccess) {
    // The mutex must be free, since the destructor of captured work may call the runtime.
    delete graph;
  }
  return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const cudaError_t error =
      Call([&](Machine&, Lock&) { return exec == nullptr ? cudaErrorInvalidValue : cudaSuccess; });
  if (error == cudaSuccess) {
    // Launches that have not run yet keep what they need.
    delete exec;
  }
  return error;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Call([&](Machine&, Lock&) {
    if (graph == nullptr || count == nullptr) {
      return cudaErrorInvalidValue;
    }
    if (nodes != nullptr) {
      for (size_t i = 0; i < *count; ++i) {
        nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
      }
      *count = *count < graph->nodes.size() ? *count : graph->nodes.size();
    } else {
      *count = graph->nodes.size();
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return Call([&](Machine&, Lock&) {
    if (node == nullptr || type == nullptr) {
      return cudaErrorInvalidValue;
    }
    *type = node->operation.type;
    return cudaSuccess;
  });
}

}  // extern "C"
