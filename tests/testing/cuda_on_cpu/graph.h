// Defines graphs: operations, each with the operations that come before it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "tests/testing/cuda_on_cpu/operation.h"
#include "tests/testing/cuda_on_cpu/random.h"

struct CUgraphNode_st {
  trainyard::cuda_on_cpu::Operation operation;
  std::vector<CUgraphNode_st*> after;
  // Its index in its graph.
  size_t index = 0;
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};

namespace trainyard::cuda_on_cpu {

// A graph as it was when it was instantiated. It never changes.
struct GraphPlan {
  struct Node {
    std::function<void()> work;
    std::vector<size_t> before;
    size_t after_count = 0;
  };
  std::vector<Node> nodes;
  bool may_block = false;
};

// One launch of a graph. It draws the next node among those whose predecessors have all run.
class GraphRun {
 public:
  explicit GraphRun(std::shared_ptr<const GraphPlan> plan);

  // Returns the work of the node that runs next, which the run keeps. It is empty for a graph
  // without nodes.
  const std::function<void()>& Draw(Random& random);
  // Records that the drawn node has run. Returns true if it was the last one.
  bool Ran();

 private:
  std::shared_ptr<const GraphPlan> plan_;
  std::vector<size_t> missing_;
  std::vector<size_t> ready_;
  size_t running_ = 0;
  size_t left_ = 0;
};

}  // namespace trainyard::cuda_on_cpu

struct CUgraphExec_st {
  std::shared_ptr<const trainyard::cuda_on_cpu::GraphPlan> plan;
  // A graph does not run twice at once: a launch waits for the one before it.
  std::shared_ptr<trainyard::cuda_on_cpu::Completion> last_launch;
};
