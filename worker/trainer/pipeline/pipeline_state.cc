// Matches the tensors of the stages with those of the whole model by their names.
#include "worker/trainer/pipeline/pipeline_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/state_table.h"
#include "worker/engine/graph/split.h"

namespace trainyard::trainer {
namespace {

std::vector<engine::StateTensor> TensorsOf(const engine::Graph& graph,
                                           const engine::OptimizerSpec& optimizer) {
  const engine::ReductionLayout layout =
      engine::LayOutReduction(engine::BuildTrainingStep(graph, {}));
  return engine::BuildStateTable(graph, layout, optimizer).tensors;
}

absl::StatusOr<size_t> IndexOf(const engine::ModelState& stage, const StagedTensor& tensor) {
  const std::vector<engine::StateTensor>& state = stage.state();
  const auto found = std::find_if(state.begin(), state.end(), [&](const auto& candidate) {
    return candidate.name == tensor.tensor.name;
  });
  if (found == state.end()) {
    return absl::InternalError(absl::StrCat("a stage without its tensor '", tensor.tensor.name,
                                            "'; expected the stage of this rank"));
  }
  return static_cast<size_t>(found - state.begin());
}

std::vector<float> RoomFor(const StagedTensor& tensor) {
  return std::vector<float>(static_cast<size_t>(engine::ElementCount(tensor.tensor.shape)));
}

bool Has(const StagedTensor& tensor, int stage) {
  return std::find(tensor.stages.begin(), tensor.stages.end(), stage) != tensor.stages.end();
}

}  // namespace

absl::StatusOr<std::vector<StagedTensor>> StateOfStages(const engine::Graph& model,
                                                        absl::Span<const std::string> cuts,
                                                        const engine::OptimizerSpec& optimizer) {
  TY_ASSIGN_OR_RETURN(const std::vector<engine::Graph> graphs, engine::SplitModel(model, cuts));
  std::map<std::string, std::vector<int>> stages;
  for (size_t s = 0; s < graphs.size(); ++s) {
    for (const engine::StateTensor& tensor : TensorsOf(graphs[s], optimizer)) {
      stages[tensor.name].push_back(static_cast<int>(s));
    }
  }
  std::vector<StagedTensor> all;
  for (engine::StateTensor& tensor : TensorsOf(model, optimizer)) {
    std::vector<int> of = stages[tensor.name];
    all.push_back({std::move(tensor), std::move(of)});
  }
  return all;
}

absl::Status GatherState(const std::vector<StagedTensor>& tensors, const engine::ModelState& stage,
                         parallel::Communicator& pipeline, const TakeTensor& take) {
  const int mine = pipeline.rank();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int owner = tensors[i].stages.front();
    if (mine != 0 && mine != owner) continue;
    std::vector<float> values = RoomFor(tensors[i]);
    if (mine == owner) {
      TY_ASSIGN_OR_RETURN(const size_t index, IndexOf(stage, tensors[i]));
      TY_RETURN_IF_ERROR(stage.ReadState(index, absl::MakeSpan(values)));
      if (mine != 0) TY_RETURN_IF_ERROR(pipeline.Send(values, 0));
    } else {
      TY_RETURN_IF_ERROR(pipeline.Receive(absl::MakeSpan(values), owner));
    }
    if (mine == 0) TY_RETURN_IF_ERROR(take(i, std::move(values)));
  }
  return absl::OkStatus();
}

absl::Status ScatterState(const std::vector<StagedTensor>& tensors, const GiveTensor& give,
                          parallel::Communicator& pipeline, engine::ModelState& stage) {
  const int mine = pipeline.rank();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool is_mine = Has(tensors[i], mine);
    if (mine != 0 && !is_mine) continue;
    std::vector<float> values = RoomFor(tensors[i]);
    if (mine == 0) {
      TY_ASSIGN_OR_RETURN(values, give(i));
      for (const int owner : tensors[i].stages) {
        if (owner != 0) TY_RETURN_IF_ERROR(pipeline.Send(values, owner));
      }
    } else {
      TY_RETURN_IF_ERROR(pipeline.Receive(absl::MakeSpan(values), 0));
    }
    if (!is_mine) continue;
    TY_ASSIGN_OR_RETURN(const size_t index, IndexOf(stage, tensors[i]));
    TY_RETURN_IF_ERROR(stage.WriteState(index, values));
  }
  return absl::OkStatus();
}

HeldState::HeldState(const std::vector<StagedTensor>& tensors) {
  for (const StagedTensor& each : tensors) {
    tensors_.push_back(each.tensor);
    values_.push_back(RoomFor(each));
  }
}

absl::Status HeldState::ReadState(size_t index, absl::Span<float> values) const {
  if (index >= values_.size() || values.size() != values_[index].size()) {
    return absl::InvalidArgumentError(absl::StrCat("state tensor ", index, " of ", values.size(),
                                                   " values; expected one of ", values_.size(),
                                                   " tensors and its size"));
  }
  std::copy(values_[index].begin(), values_[index].end(), values.begin());
  return absl::OkStatus();
}

absl::Status HeldState::WriteState(size_t index, absl::Span<const float> values) {
  if (index >= values_.size() || values.size() != values_[index].size()) {
    return absl::InvalidArgumentError(absl::StrCat("state tensor ", index, " of ", values.size(),
                                                   " values; expected one of ", values_.size(),
                                                   " tensors and its size"));
  }
  std::copy(values.begin(), values.end(), values_[index].begin());
  return absl::OkStatus();
}

}  // namespace trainyard::trainer
