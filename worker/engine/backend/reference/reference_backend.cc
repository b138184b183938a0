#include "worker/engine/backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/judge.h"
#include "worker/engine/backend/reference/kernels.h"
#include "worker/engine/backend/reference/update.h"
#include "worker/engine/backend/state_table.h"

namespace trainyard::engine {
namespace {

// Places of a step graph's values: those of the largest batch do for the smaller ones.
struct Placement {
  ValueLifetimes lifetimes;
  ArenaLayout arena;
};

template <class T>
class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(const Graph& model, const OptimizerSpec& optimizer,
                      const CompileOptions& options, Backing backing)
      : options_(options),
        optimizer_(optimizer),
        model_(model),
        training_(BuildTrainingStep(model, {options.passes, options.inspect})),
        evaluation_(BuildEvaluationStep(model, {options.passes, options.inspect})),
        layout_(LayOutReduction(training_)),
        table_(BuildStateTable(model, layout_, optimizer)),
        training_place_(Place(training_, options.max_rows)),
        evaluation_place_(Place(evaluation_, options.max_rows)) {
    parameters_ = AlignedBuffer(layout_.gradient_elements * kElement, backing);
    statistics_ = AlignedBuffer(layout_.statistic_elements * kElement, backing);
    slots_ = AlignedBuffer(table_.slot_elements * kElement, backing);
    averages_ = AlignedBuffer(table_.average_elements * kElement, backing);
    reduction_ = AlignedBuffer(layout_.size * int64_t{sizeof(float)}, backing);
    // Parameter gradients before they are added to the arena.
    gradients_ = AlignedBuffer(layout_.gradient_elements * kElement, backing);
    for (int i = 0; i < std::max(1, options.microbatch_slots); ++i) AddSlot(backing);
    plan_.parameters = parameters_.bytes() + statistics_.bytes();
    plan_.optimizer = slots_.bytes() + averages_.bytes();
    plan_.gradients = reduction_.bytes();
    plan_.workspace = gradients_.bytes();
    int64_t unshared = 0;
    for (const Lifetime& lifetime : training_place_.lifetimes.lifetimes) {
      unshared += AlignUp(lifetime.bytes);
    }
    for (const Slot& slot : microbatches_) {
      plan_.activations += slot.arena.bytes() + slot.boundary_bytes();
      plan_.activations_unshared += unshared + slot.boundary_bytes();
      plan_.workspace += slot.inputs.bytes();
    }
  }

  const std::vector<StateTensor>& state() const override { return table_.tensors; }
  absl::Status ReadState(size_t index, absl::Span<float> values) const override;
  absl::Status WriteState(size_t index, absl::Span<const float> values) override;
  absl::Status Accumulate(const Batch& batch, double weight,
                          const ReadyCallback& on_ready) override;
  absl::Span<float> reduction() override {
    return {reduction_.as<float>(), static_cast<size_t>(layout_.size)};
  }
  Boundary boundary(int slot) override;
  absl::Status Forward(const Batch& batch, int64_t rows, int slot) override;
  absl::Status Backward(const Batch& batch, int64_t rows, int slot, double weight,
                        const ReadyCallback& on_ready) override;
  absl::StatusOr<Evaluation> EvaluateStage(const Batch& batch, int64_t rows) override;
  absl::Status StartUpdate(double lr) override;
  absl::StatusOr<StepMetrics> FinishUpdate() override { return updated_; }
  absl::Status ExchangeAverages() override;
  absl::StatusOr<Evaluation> Evaluate(const Batch& batch) override;
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const float> inputs) override;
  absl::StatusOr<Inspection> Inspect() const override;
  const MemoryPlan& memory_plan() const override { return plan_; }
  CompilePlan Planned() const {
    CompilePlan plan{.memory = plan_, .calls = {}};
    for (const Node& node : training_.graph.nodes) {
      ++plan.calls[std::string(OpName(node.op))];
    }
    return plan;
  }

 private:
  static constexpr int64_t kElement = sizeof(T);

  static Placement Place(const StepGraph& step, int64_t rows) {
    Placement placement;
    placement.lifetimes = ComputeLifetimes(step, rows, kElement);
    placement.arena = PlanArena(placement.lifetimes.lifetimes);
    return placement;
  }

  T* Pointer(const StepGraph& step, const Placement& placement, ValueId id) const;
  T* StateMemory(size_t index) const;
  // Counts the update, and tells its rates.
  UpdateRates NextRates(double lr);
  void UpdateParameter(const Segment& segment, const UpdateRates& rates);
  // What a microbatch keeps from Forward to Backward; one where there are none.
  struct Slot {
    AlignedBuffer arena;
    AlignedBuffer inputs;  // as T
    // Floats, of the boundary.
    AlignedBuffer stage_inputs, stage_outputs, input_gradients, output_gradients;
    int64_t rows = 0;  // of a Forward kept; 0: none

    int64_t boundary_bytes() const {
      return stage_inputs.bytes() + stage_outputs.bytes() + input_gradients.bytes() +
             output_gradients.bytes();
    }
  };
  void AddSlot(Backing backing);
  // Nodes [begin, end) in the slot, for `rows` rows; after each, done(node).
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  template <class Done>
  void Run(const StepGraph& step, const Placement& placement, Range nodes, int64_t rows,
           const Batch& batch, double gradient_scale, const Done& done);
  // Nodes from `begin` on, and what they and the batch's metrics add to the reduction.
  void RunToReduction(size_t begin, int64_t rows, const Batch& batch, double weight,
                      const ReadyCallback& on_ready);
  // Works in the slot from now on.
  void EnterSlot(int slot) { slot_ = &microbatches_[static_cast<size_t>(slot)]; }
  void LoadInputs(absl::Span<const float> inputs) {
    std::copy(inputs.begin(), inputs.end(), slot_->inputs.template as<T>());
  }
  void LoadStageInputs(const Batch& batch, int64_t rows) {
    const float* inputs =
        model_.has_stage_input ? slot_->stage_inputs.template as<float>() : batch.inputs.data();
    LoadInputs({inputs, static_cast<size_t>(rows * ElementCount(model_.input_shape()))});
  }
  Evaluation Judge(absl::Span<const int32_t> labels) const;

  const CompileOptions options_;
  const OptimizerSpec optimizer_;
  const Graph model_;
  const StepGraph training_;
  const StepGraph evaluation_;
  const ReductionLayout layout_;
  const StateTable table_;
  const Placement training_place_;
  const Placement evaluation_place_;
  AlignedBuffer parameters_, slots_, averages_, statistics_;
  AlignedBuffer reduction_, gradients_;
  std::vector<Slot> microbatches_;
  Slot* slot_ = nullptr;  // in use
  MemoryPlan plan_;
  int64_t last_rows_ = 0;
  StepMetrics updated_;  // of the last update
};

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
      return slots_.as<T>() + offset;
    case StateTensor::Kind::kAverage:
      return averages_.as<T>() + offset;
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
void ReferenceExecutable<T>::Run(const StepGraph& step, const Placement& placement, Range nodes,
                                 int64_t rows, const Batch& batch, double gradient_scale,
                                 const Done& done) {
  for (size_t i = nodes.begin; i < nodes.end; ++i) {
    const Node& node = step.graph.nodes[i];
    reference::Operands<T> operands{step.graph,
                                    node,
                                    rows,
                                    {},
                                    {},
                                    batch.labels.data(),
                                    gradient_scale,
                                    batch.position,
                                    slot_->output_gradients.template as<float>()};
    for (ValueId input : node.inputs) {
      operands.inputs.push_back(Pointer(step, placement, input));
    }
    for (ValueId output : node.outputs) {
      operands.outputs.push_back(Pointer(step, placement, output));
    }
    reference::RunNode(operands);
    done(node);
  }
}

template <class T>
absl::Status ReferenceExecutable<T>::Accumulate(const Batch& batch, double weight,
                                                const ReadyCallback& on_ready) {
  TY_RETURN_IF_ERROR(CheckBatch(model_, batch, options_.max_rows));
  TY_RETURN_IF_ERROR(CheckStatistics(training_, RowsOf(model_, batch)));
  EnterSlot(0);
  LoadInputs(batch.inputs);
  last_rows_ = RowsOf(model_, batch);
  RunToReduction(0, last_rows_, batch, weight, on_ready);
  return absl::OkStatus();
}

template <class T>
void ReferenceExecutable<T>::RunToReduction(size_t begin, int64_t rows, const Batch& batch,
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
  Run(training_, placement, {begin, training_.graph.nodes.size()}, rows, batch, weight / labels,
      add_gradients);
  for (const BatchStatistics& statistics : training_.statistics) {
    const double count = static_cast<double>(rows * statistics.count_per_row);
    const T* mean = Pointer(training_, placement, statistics.mean);
    const T* variance = Pointer(training_, placement, statistics.variance);
    const ReductionEntry& entry = layout_.entry(statistics.running_mean);
    const int64_t variance_offset = layout_.entry(statistics.running_variance).offset;
    for (int64_t c = 0; c < entry.count; ++c) {
      sums[entry.offset + c] += static_cast<float>(weight * mean[c]);
      sums[variance_offset + c] += static_cast<float>(weight * variance[c] * count / (count - 1));
    }
  }
  if (model_.has_loss()) {
    const T loss = *Pointer(training_, placement, training_.graph.loss);
    const T correct = *Pointer(training_, placement, training_.graph.correct);
    sums[layout_.loss_offset] += static_cast<float>(weight * loss);
    sums[layout_.correct_offset] += static_cast<float>(weight * correct / labels);
  }
  if (on_ready) {
    on_ready(ready, layout_.size - ready);
  }
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
Executable::Boundary ReferenceExecutable<T>::boundary(int slot) {
  TY_CHECK(CheckSlot(options_, slot).ok());
  const auto span = [this](const AlignedBuffer& buffer, ValueId value) {
    if (buffer.data() == nullptr) return absl::Span<float>();
    return absl::Span<float>(buffer.as<float>(),
                             static_cast<size_t>(model_.value(value).Elements(options_.max_rows)));
  };
  const Slot& of = microbatches_[static_cast<size_t>(slot)];
  return {span(of.stage_inputs, model_.input), span(of.stage_outputs, model_.stage_output),
          span(of.input_gradients, model_.input), span(of.output_gradients, model_.stage_output)};
}

template <class T>
absl::Status ReferenceExecutable<T>::Forward(const Batch& batch, int64_t rows, int slot) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, slot));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  TY_RETURN_IF_ERROR(CheckStatistics(training_, rows));
  last_rows_ = 0;
  EnterSlot(slot);
  slot_->rows = rows;
  LoadStageInputs(batch, rows);
  Run(training_, training_place_, {0, ForwardNodes(training_)}, rows, batch, 0, [](const Node&) {});
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
  RunToReduction(ForwardNodes(training_), rows, batch, weight, on_ready);
  if (model_.has_stage_input) {
    std::copy_n(Pointer(training_, training_place_, training_.input_gradient),
                model_.value(model_.input).Elements(rows),
                slot_->input_gradients.template as<float>());
  }
  return absl::OkStatus();
}

template <class T>
UpdateRates ReferenceExecutable<T>::NextRates(double lr) {
  int64_t t = 0;
  if (table_.step_offset >= 0) {
    T& count = slots_.as<T>()[table_.step_offset];
    t = std::min(static_cast<int64_t>(count) + 1, kMaxCountedSteps);
    count = static_cast<T>(t);
  }
  return RatesOfUpdate(optimizer_, lr, t,
                       reference::Norm(reduction_.as<float>(), layout_.gradient_elements));
}

template <class T>
void ReferenceExecutable<T>::UpdateParameter(const Segment& segment, const UpdateRates& rates) {
  const size_t slots = SlotNames(optimizer_).size();
  T* parameter = parameters_.as<T>() + segment.offset;
  reference::ParameterState<T> state = {.count = segment.count,
                                        .gradient = reduction_.as<float>() + segment.offset,
                                        .parameter = parameter};
  if (slots > 0) {
    state.first = slots_.as<T>() + segment.offset;
  }
  if (slots > 1) {
    state.second = state.first + layout_.gradient_elements;
  }
  reference::ApplyRule<T>(optimizer_, rates,
                          segment.is_bias_or_norm && !optimizer_.decay_bias_and_norm, state);
  if (optimizer_.ema_decay > 0) {
    reference::FoldAverage(rates.average_keep, parameter, averages_.as<T>() + segment.offset,
                           segment.count);
  }
}

template <class T>
absl::Status ReferenceExecutable<T>::ExchangeAverages() {
  TY_RETURN_IF_ERROR(CheckHasAverages(table_));
  std::swap_ranges(parameters_.as<T>(), parameters_.as<T>() + layout_.gradient_elements,
                   averages_.as<T>());
  return absl::OkStatus();
}

template <class T>
absl::Status ReferenceExecutable<T>::StartUpdate(double lr) {
  float* sums = reduction_.as<float>();
  updated_ = {sums[layout_.loss_offset], sums[layout_.correct_offset]};
  for (int64_t i = 0; i < layout_.gradient_elements; ++i) {
    if (!std::isfinite(sums[i])) {
      updated_.loss = std::numeric_limits<double>::quiet_NaN();
    }
  }
  const UpdateRates rates = NextRates(lr);
  for (const Segment& segment : table_.segments) {
    UpdateParameter(segment, rates);
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
  Run(evaluation_, evaluation_place_, {0, evaluation_.graph.nodes.size()}, RowsOf(model_, batch),
      batch, 0, [](const Node&) {});
  return Judge(batch.labels);
}

template <class T>
absl::StatusOr<Evaluation> ReferenceExecutable<T>::EvaluateStage(const Batch& batch, int64_t rows) {
  TY_RETURN_IF_ERROR(CheckSlot(options_, 0));
  TY_RETURN_IF_ERROR(CheckStageBatch(model_, batch, rows, options_.max_rows));
  EnterSlot(0);
  LoadStageInputs(batch, rows);
  last_rows_ = 0;
  Run(evaluation_, evaluation_place_, {0, evaluation_.graph.nodes.size()}, rows, batch, 0,
      [](const Node&) {});
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
  Run(evaluation_, placement, {0, evaluation_.graph.nodes.size() - 1}, rows, Batch{inputs, {}}, 0,
      [](const Node&) {});
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

absl::Status CheckPrecision(Precision precision) {
  return precision == Precision::kF32
             ? absl::OkStatus()
             : absl::FailedPreconditionError(
                   absl::StrCat("precision ", PrecisionName(precision),
                                " needs another backend; the reference computes in f32 and f64"));
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(Arithmetic arithmetic) : arithmetic_(arithmetic) {}

  absl::string_view name() const override {
    return arithmetic_ == Arithmetic::kF32 ? "reference" : "reference_f64";
  }

  absl::StatusOr<std::unique_ptr<Executable>> Compile(const Graph& model,
                                                      const OptimizerSpec& optimizer,
                                                      const CompileOptions& options) override {
    TY_RETURN_IF_ERROR(CheckCompileOptions(options));
    TY_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    TY_RETURN_IF_ERROR(CheckPrecision(options.precision));
    if (arithmetic_ == Arithmetic::kF32) {
      return std::make_unique<ReferenceExecutable<float>>(model, optimizer, options,
                                                          Backing::kMemory);
    }
    return std::make_unique<ReferenceExecutable<double>>(model, optimizer, options,
                                                         Backing::kMemory);
  }

  absl::StatusOr<CompilePlan> Plan(const Graph& model, const OptimizerSpec& optimizer,
                                   const CompileOptions& options) override {
    TY_RETURN_IF_ERROR(CheckCompileOptions(options));
    TY_RETURN_IF_ERROR(ValidateOptimizer(optimizer));
    TY_RETURN_IF_ERROR(CheckPrecision(options.precision));
    if (arithmetic_ == Arithmetic::kF32) {
      return ReferenceExecutable<float>(model, optimizer, options, Backing::kAddresses).Planned();
    }
    return ReferenceExecutable<double>(model, optimizer, options, Backing::kAddresses).Planned();
  }

 private:
  const Arithmetic arithmetic_;
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend(Arithmetic arithmetic) {
  return std::make_unique<ReferenceBackend>(arithmetic);
}

}  // namespace trainyard::engine
