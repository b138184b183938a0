// Runs a step graph node by node. Each value has its place in the arena.
#include "worker/engine/backend/reference/reference_executable.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/judge.h"
#include "worker/engine/backend/reference/kernels.h"

namespace trainyard::engine {

template <class T>
T* ReferenceExecutable<T>::Pointer(const StepGraph& step, const Placement& placement,
                                   ValueId id) const {
  if (id == kNoValue) {
    return nullptr;
  }
  const int lifetime = placement.lifetimes.lifetime_of[static_cast<size_t>(id)];
  if (lifetime >= 0) {
    return reinterpret_cast<T*>(slot_->arena.data() +
                                placement.arena.offsets[static_cast<size_t>(lifetime)]);
  }
  const Value& value = step.graph.value(id);
  switch (value.role) {
    case Role::kParameter:
      return parameters_.as<T>() + layout_.entry(id).offset;
    case Role::kParameterGradient:
      return gradients_.as<T>() + layout_.entry(value.primal).offset;
    case Role::kBuffer:
      return statistics_.as<T>() + layout_.entry(id).offset - layout_.gradient_elements;
    case Role::kLabels:
      return nullptr;
    case Role::kInput:
    case Role::kActivation:
    case Role::kGradient:
      return slot_->inputs.template as<T>();  // the input, or a flattened view of it
  }
  return nullptr;
}

template <class T>
T* ReferenceExecutable<T>::StateMemory(size_t index) const {
  const int64_t offset = table_.offsets[index];
  switch (table_.tensors[index].kind) {
    case StateTensor::Kind::kParameter:
      return parameters_.as<T>() + offset;
    case StateTensor::Kind::kBuffer:
      return statistics_.as<T>() + offset;
    case StateTensor::Kind::kOptimizerSlot:
      return updater_.state().slots() + offset;
    case StateTensor::Kind::kAverage:
      return updater_.state().averages() + offset;
  }
  return nullptr;
}

template <class T>
absl::Status ReferenceExecutable<T>::ReadState(size_t index, absl::Span<float> values) const {
  TY_RETURN_IF_ERROR(CheckStateAccess(table_, index, values.size()));
  const T* memory = StateMemory(index);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(memory[i]);
  }
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::WriteState(size_t index, absl::Span<const float> values) {
  TY_RETURN_IF_ERROR(CheckStateAccess(table_, index, values.size()));
  std::copy(values.begin(), values.end(), StateMemory(index));
  return absl::OkStatus();
}

template <class T>
template <class Done>
absl::Status ReferenceExecutable<T>::Run(const StepGraph& step, const Placement& placement,
                                         Range nodes, int64_t rows, const Batch& batch,
                                         double gradient_scale, const Done& done) {
  for (size_t i = nodes.begin; i < nodes.end; ++i) {
    const Node& node = step.graph.nodes[i];
    reference::Operands<T> operands{
        .graph = step.graph,
        .node = node,
        .rows = rows,
        .inputs = {},
        .outputs = {},
        .labels = batch.labels.data(),
        .gradient_scale = gradient_scale,
        .position = batch.position,
        .stage_output_gradient = slot_->output_gradients.template as<float>()};
    for (ValueId input : node.inputs) {
      operands.inputs.push_back(Pointer(step, placement, input));
    }
    for (ValueId output : node.outputs) {
      operands.outputs.push_back(Pointer(step, placement, output));
    }
    if (&step == &training_) {
      operands.groups.Set(batch.groups);
      operands.ranks = ranks_.is_wanted() ? &ranks_ : nullptr;
    }
    TY_RETURN_IF_ERROR(Annotate(reference::RunNode(operands), node.name));
    done(node);
  }
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::Accumulate(const Batch& batch, double weight,
                                                const ReadyCallback& on_ready) {
  TY_RETURN_IF_ERROR(CheckBatch(model_, batch, options_.max_rows));
  TY_RETURN_IF_ERROR(CheckStatistics(training_, options_, batch.groups, RowsOf(model_, batch)));
  EnterSlot(0);
  LoadInputs(batch.inputs);
  last_rows_ = RowsOf(model_, batch);
  return RunToReduction(0, last_rows_, batch, weight, on_ready);
}

template <class T>
absl::Status ReferenceExecutable<T>::TakePartInStatistics(const ReadyCallback& on_ready) {
  if (!ranks_.is_wanted()) return Executable::TakePartInStatistics(on_ready);
  TY_RETURN_IF_ERROR(ranks_.TakePart(training_));
  if (on_ready) on_ready(0, layout_.size);
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::RunToReduction(size_t begin, int64_t rows, const Batch& batch,
                                                    double weight, const ReadyCallback& on_ready) {
  const double labels = static_cast<double>(rows * model_.labels_per_row());
  const Placement& placement = training_place_;
  float* sums = reduction_.as<float>();
  int64_t ready = 0;
  auto add_gradients = [&](const Node& node) {
    for (ValueId output : node.outputs) {
      if (output == kNoValue || training_.graph.value(output).role != Role::kParameterGradient) {
        continue;
      }
      const ReductionEntry& entry = layout_.entry(training_.graph.value(output).primal);
      const T* gradient = gradients_.as<T>() + entry.offset;
      for (int64_t i = 0; i < entry.count; ++i) {
        sums[entry.offset + i] += static_cast<float>(gradient[i]);
      }
      if (node.is_partial) {
        continue;
      }
      if (on_ready) {
        on_ready(ready, entry.offset + entry.count - ready);
      }
      ready = entry.offset + entry.count;
    }
  };
  TY_RETURN_IF_ERROR(Run(training_, placement, {begin, training_.graph.nodes.size()}, rows, batch,
                         weight / labels, add_gradients));
  FoldStatistics(batch, rows, weight);
  if (model_.has_loss()) {
    const T loss = *Pointer(training_, placement, training_.graph.loss);
    const T correct = *Pointer(training_, placement, training_.graph.correct);
    sums[layout_.loss_offset] += static_cast<float>(weight * loss);
    sums[layout_.correct_offset] += static_cast<float>(weight * correct / labels);
  }
  if (on_ready) {
    on_ready(ready, layout_.size - ready);
  }
  return absl::OkStatus();
}

template <class T>
void ReferenceExecutable<T>::AddSlot(Backing backing) {
  const auto buffer = [&](ValueId value, int64_t element) {
    return AlignedBuffer(model_.value(value).Elements(options_.max_rows) * element, backing);
  };
  constexpr int64_t kFloat = sizeof(float);
  Slot& slot = microbatches_.emplace_back();
  slot.arena =
      AlignedBuffer(std::max(training_place_.arena.bytes, evaluation_place_.arena.bytes), backing);
  slot.inputs = buffer(model_.input, kElement);
  if (options_.microbatch_slots == 0) return;
  if (model_.has_stage_input) {
    slot.stage_inputs = buffer(model_.input, kFloat);
    slot.input_gradients = buffer(model_.input, kFloat);
  }
  if (!model_.has_loss()) {
    slot.stage_outputs = buffer(model_.stage_output, kFloat);
    slot.output_gradients = buffer(model_.stage_output, kFloat);
  }
}

template <class T>
PipelineStage::Boundary ReferenceExecutable<T>::boundary(int slot, int64_t rows) {
  TY_CHECK(CheckSlot(options_, slot).ok() && rows >= 1 && rows <= options_.max_rows);
  const auto span = [this, rows](const AlignedBuffer& buffer, ValueId value) {
    if (buffer.data() == nullptr) return absl::Span<float>();
    return absl::Span<float>(buffer.as<float>(),
                             static_cast<size_t>(model_.value(value).Elements(rows)));
  };
  const Slot& of = microbatches_[static_cast<size_t>(slot)];
  return {span(of.stage_inputs, model_.input), span(of.stage_outputs, model_.stage_output),
          span(of.input_gradients, model_.input), span(of.output_gradients, model_.stage_output)};
}

template <class T>
absl::Status ReferenceExecutable<T>::Forward(const Batch& batch, int64_t rows, int slot) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, slot));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  TY_RETURN_IF_ERROR(CheckStatistics(training_, options_, batch.groups, rows));
  last_rows_ = 0;
  EnterSlot(slot);
  slot_->rows = rows;
  LoadStageInputs(batch, rows);
  TY_RETURN_IF_ERROR(Run(training_, training_place_, {0, ForwardNodes(training_)}, rows, batch, 0,
                         [](const Node&) {}));
  if (!model_.has_loss()) {
    std::copy_n(Pointer(training_, training_place_, training_.graph.stage_output),
                model_.value(model_.stage_output).Elements(rows),
                slot_->stage_outputs.template as<float>());
  }
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::Backward(const Batch& batch, int64_t rows, int slot,
                                              double weight, const ReadyCallback& on_ready) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, slot));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  EnterSlot(slot);
  TY_RETURN_IF_ERROR(CheckForwardDone(slot_->rows, rows, slot));
  slot_->rows = 0;
  TY_RETURN_IF_ERROR(RunToReduction(ForwardNodes(training_), rows, batch, weight, on_ready));
  if (model_.has_stage_input) {
    std::copy_n(Pointer(training_, training_place_, training_.input_gradient),
                model_.value(model_.input).Elements(rows),
                slot_->input_gradients.template as<float>());
  }
  return absl::OkStatus();
}

template <class T>
void ReferenceExecutable<T>::FoldStatistics(const Batch& batch, int64_t rows, double weight) {
  RowGroups groups;
  groups.Set(batch.groups);
  float* sums = reduction_.as<float>();
  for (const BatchStatistics& statistics : training_.statistics) {
    const T* mean = Pointer(training_, training_place_, statistics.mean);
    const T* variance = Pointer(training_, training_place_, statistics.variance);
    const ReductionEntry& entry = layout_.entry(statistics.running_mean);
    const int64_t variance_offset = layout_.entry(statistics.running_variance).offset;
    for (int64_t group = 0; group < groups.count(); ++group) {
      const int64_t of_group = groups.rows(group, rows);
      const double count = static_cast<double>((ranks_.is_wanted() ? ranks_.rows() : of_group) *
                                               statistics.count_per_row);
      const double share = weight * static_cast<double>(of_group) / static_cast<double>(rows);
      for (int64_t c = 0; c < entry.count; ++c) {
        const int64_t at = group * entry.count + c;
        sums[entry.offset + c] += static_cast<float>(share * mean[at]);
        sums[variance_offset + c] += static_cast<float>(share * variance[at] * count / (count - 1));
      }
    }
  }
}

template <class T>
absl::Status ReferenceExecutable<T>::ExchangeAverages() {
  TY_RETURN_IF_ERROR(CheckHasAverages(table_));
  updater_.state().ExchangeAverages(parameters_.as<T>());
  return absl::OkStatus();
}

template <class T>
absl::Span<float> ReferenceExecutable<T>::parameters() {
  if constexpr (std::is_same_v<T, float>) {
    return {parameters_.as<float>(), static_cast<size_t>(layout_.gradient_elements)};
  }
  return {};
}

template <class T>
absl::Status ReferenceExecutable<T>::CompleteStates(const CompleteState& complete, bool) {
  if constexpr (std::is_same_v<T, float>) {
    for (const absl::Span<float> state : updater_.state().parameter_states()) {
      TY_RETURN_IF_ERROR(complete(state));
    }
  }
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::StoreSums(int slot) {
  std::copy(reduction().begin(), reduction().end(), sums(slot).begin());
  std::fill(reduction().begin(), reduction().end(), 0.0f);
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::AddSums(int slot, int64_t begin, int64_t end) {
  TY_CHECK(begin >= 0 && begin <= end && end <= layout_.size);
  const float* terms = sums(slot).data();
  float* target = reduction_.as<float>();
  for (int64_t i = begin; i < end; ++i) {
    target[i] = terms[i] + target[i];
  }
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::BeginUpdate(double lr) {
  updater_.Begin(lr, reduction_.as<float>());
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::UpdateRange(int64_t begin, int64_t end) {
  updater_.Apply(begin, end, parameters_.as<T>(), reduction_.as<float>());
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::StartUpdate(double lr) {
  updater_.Begin(lr, reduction_.as<float>());
  updater_.Apply(0, layout_.gradient_elements, parameters_.as<T>(), reduction_.as<float>());
  return EndUpdate();
}

template <class T>
absl::Status ReferenceExecutable<T>::EndUpdate() {
  float* sums = reduction_.as<float>();
  updated_ = {sums[layout_.loss_offset], sums[layout_.correct_offset]};
  if (!updater_.is_finite()) {
    updated_.loss = std::numeric_limits<double>::quiet_NaN();
  }
  for (const BatchStatistics& statistics : training_.statistics) {
    for (ValueId target : {statistics.running_mean, statistics.running_variance}) {
      const ReductionEntry& entry = layout_.entry(target);
      const T share = static_cast<T>(statistics.momentum);
      for (int64_t c = 0; c < entry.count; ++c) {
        T& running = statistics_.as<T>()[entry.offset - layout_.gradient_elements + c];
        running = (1 - share) * running + share * static_cast<T>(sums[entry.offset + c]);
      }
    }
  }
  std::fill_n(sums, layout_.size, 0.0f);
  return absl::OkStatus();
}

template <class T>
Evaluation ReferenceExecutable<T>::Judge(absl::Span<const int32_t> labels) const {
  const auto at = [this](ValueId id) { return Pointer(evaluation_, evaluation_place_, id); };
  const Graph& graph = evaluation_.graph;
  const auto count = static_cast<int64_t>(labels.size());
  return Evaluation{static_cast<double>(*at(graph.loss)) * static_cast<double>(count),
                    static_cast<int64_t>(std::llround(*at(graph.correct))), count,
                    CountInTop(at(graph.logits), graph.classes(), labels)};
}

template <class T>
absl::StatusOr<Evaluation> ReferenceExecutable<T>::Evaluate(const Batch& batch) {
  TY_RETURN_IF_ERROR(CheckBatch(model_, batch, options_.max_rows));
  EnterSlot(0);
  LoadInputs(batch.inputs);
  last_rows_ = 0;
  TY_RETURN_IF_ERROR(Run(evaluation_, evaluation_place_, {0, evaluation_.graph.nodes.size()},
                         RowsOf(model_, batch), batch, 0, [](const Node&) {}));
  return Judge(batch.labels);
}

template <class T>
absl::StatusOr<Evaluation> ReferenceExecutable<T>::EvaluateStage(const Batch& batch, int64_t rows) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, 0));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  EnterSlot(0);
  LoadStageInputs(batch, rows);
  last_rows_ = 0;
  TY_RETURN_IF_ERROR(Run(evaluation_, evaluation_place_, {0, evaluation_.graph.nodes.size()}, rows,
                         batch, 0, [](const Node&) {}));
  if (model_.has_loss()) return Judge(batch.labels);
  std::copy_n(Pointer(evaluation_, evaluation_place_, evaluation_.graph.stage_output),
              model_.value(model_.stage_output).Elements(rows),
              slot_->stage_outputs.template as<float>());
  return Evaluation{};
}

template <class T>
absl::StatusOr<std::vector<float>> ReferenceExecutable<T>::Predict(absl::Span<const float> inputs) {
  const int64_t rows = static_cast<int64_t>(inputs.size()) / ElementCount(model_.input_shape());
  TY_RETURN_IF_ERROR(CheckInputs(model_, inputs, rows, options_.max_rows));
  const Placement& placement = evaluation_place_;
  EnterSlot(0);
  LoadInputs(inputs);
  last_rows_ = 0;
  TY_RETURN_IF_ERROR(Run(evaluation_, placement, {0, evaluation_.graph.nodes.size() - 1}, rows,
                         Batch{inputs, {}}, 0, [](const Node&) {}));
  const T* logits = Pointer(evaluation_, placement, evaluation_.graph.logits);
  const int64_t count = model_.value(model_.logits).Elements(rows);
  std::vector<float> values(static_cast<size_t>(count));
  std::transform(logits, logits + values.size(), values.begin(),
                 [](T value) { return static_cast<float>(value); });
  return values;
}

template <class T>
absl::StatusOr<Inspection> ReferenceExecutable<T>::Inspect() const {
  if (!options_.inspect || last_rows_ == 0) {
    return Executable::Inspect();
  }
  const Placement& placement = training_place_;
  Inspection inspection;
  inspection.loss = static_cast<double>(*Pointer(training_, placement, training_.graph.loss));
  const T* logits = Pointer(training_, placement, training_.graph.logits);
  inspection.logits.assign(logits, logits + model_.value(model_.logits).Elements(last_rows_));
  if (training_.input_gradient != kNoValue) {
    const T* gradient = Pointer(training_, placement, training_.input_gradient);
    inspection.input_gradient.assign(gradient,
                                     gradient + last_rows_ * ElementCount(model_.input_shape()));
  }
  return inspection;
}

template class ReferenceExecutable<float>;
template class ReferenceExecutable<double>;

}  // namespace trainyard::engine
