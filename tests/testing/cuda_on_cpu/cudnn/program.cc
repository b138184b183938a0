// Checks the tensors of a graph, and orders its operations.
#include "tests/testing/cuda_on_cpu/cudnn/program.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

// Gathers the tensors by id, and the operation that makes each.
class Checker {
 public:
  cudnnStatus_t Add(const Operation& operation) {
    for (const TensorSpec& spec : operation.inputs) {
      TY_CUDNN_TRY(AddTensor(spec));
    }
    for (const TensorSpec& spec : operation.outputs) {
      TY_CUDNN_TRY(AddTensor(spec));
      if (spec.is_by_value) {
        return Fail(CUDNN_STATUS_BAD_PARAM, absl::StrCat("result ", spec.id, " is by value"));
      }
      if (!made_.insert(spec.id).second) {
        return Fail(CUDNN_STATUS_BAD_PARAM,
                    absl::StrCat("tensor ", spec.id, " is the result of two operations"));
      }
    }
    return CUDNN_STATUS_SUCCESS;
  }
  bool is_made(int64_t id) const { return made_.count(id) != 0; }
  const std::map<int64_t, TensorSpec>& tensors() const { return tensors_; }

 private:
  cudnnStatus_t AddTensor(const TensorSpec& spec) {
    const auto [found, is_new] = tensors_.emplace(spec.id, spec);
    return is_new || found->second == spec
               ? CUDNN_STATUS_SUCCESS
               : Fail(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                      absl::StrCat("two different tensors have the id ", spec.id));
  }

  std::map<int64_t, TensorSpec> tensors_;
  std::set<int64_t> made_;
};

// The gradient of attention makes those of queries, keys and values by products that each end in
// a tensor of 16 bits, if it is deterministic. Otherwise it adds up that of queries in f32 first.
int64_t ScoreGradientBytes(const Program& program) {
  int64_t ends = 0;
  int64_t scores = 0;
  for (const std::shared_ptr<const Operation>& operation : program.operations) {
    if (operation->type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) continue;
    const TensorSpec& product = operation->outputs.front();
    if (product.is_virtual) {
      scores = std::max(scores, product.elements());
    } else if (TypeBytes(product.type) == 2) {
      ++ends;
    }
  }
  return ends == 3 ? 2 * scores : 0;
}

}  // namespace

cudnnStatus_t CompileProgram(const Descriptor& graph, std::shared_ptr<const Program>* program) {
  auto made = std::make_shared<Program>();
  Checker checker;
  std::vector<std::shared_ptr<const Operation>> waiting;
  for (const auto& child : graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).children) {
    if (child->operation == nullptr) {
      return Fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
                  "an element of the operation graph is no operation");
    }
    TY_CUDNN_TRY(checker.Add(*child->operation));
    waiting.push_back(child->operation);
  }
  for (const auto& [id, spec] : checker.tensors()) {
    if (!spec.is_virtual) {
      made->tensors.push_back(spec);
    } else if (!checker.is_made(id)) {
      return Fail(CUDNN_STATUS_BAD_PARAM,
                  absl::StrCat("virtual tensor ", id, " is the result of no operation"));
    }
  }
  // Takes operations that are ready until none waits; among those, in the order of the graph.
  std::set<int64_t> done;
  while (!waiting.empty()) {
    const size_t before = waiting.size();
    for (size_t i = 0; i < waiting.size(); ++i) {
      bool is_ready = true;
      for (const TensorSpec& input : waiting[i]->inputs) {
        is_ready = is_ready && (!checker.is_made(input.id) || done.count(input.id) != 0);
      }
      if (is_ready) {
        for (const TensorSpec& output : waiting[i]->outputs) {
          done.insert(output.id);
        }
        made->operations.push_back(waiting[i]);
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    }
    if (waiting.size() == before) {
      return Fail(CUDNN_STATUS_BAD_PARAM, "the operation graph has a circle");
    }
  }
  made->workspace_bytes = ScoreGradientBytes(*made);
  *program = std::move(made);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
