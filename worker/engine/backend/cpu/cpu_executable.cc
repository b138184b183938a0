// Keeps the state of a compiled step: memory, programs by number of rows, and their runs.
#include "worker/engine/backend/cpu/cpu_executable.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cpu {
namespace {

// The memory that oneDNN needs beside our buffers, measured by the growth of the process for models
// of 20 to 800 calls. The first is its own pages and buffers. The second is the code, primitives
// and closures of a call in two batch sizes (the last batch of an epoch is smaller) and in an
// evaluation.
constexpr int64_t kLibraryBytes = 12 << 20;
constexpr int64_t kBytesPerCall = 40 << 10;

// oneDNN takes the thread count from OpenMP's setting of the calling thread, both when it creates a
// primitive and when it runs it.
// If the step gives the same bits with any number of threads, oneDNN gets one thread, and ours
// share its work (Part).
class ScopedThreads {
 public:
  explicit ScopedThreads(const CompileOptions& options) : before_(omp_get_max_threads()) {
    omp_set_num_threads(options.deterministic ? 1 : options.threads);
  }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;
  ~ScopedThreads() { omp_set_num_threads(before_); }

 private:
  const int before_;
};

absl::Status FromError(const dnnl::error& error) {
  return absl::InternalError(
      absl::StrCat("oneDNN: ", error.what(), " (status ", static_cast<int>(error.status), ")"));
}

// Returns the name of the instruction set that oneDNN uses, for people.
absl::string_view InstructionSet(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2";
    default:
      return "AVX-512";
  }
}

}  // namespace

absl::Status CheckPrecision(Precision precision) {
  // The values of instruction sets are sets of bits, each of which contains those before it.
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  constexpr unsigned kWanted = dnnl_cpu_isa_avx512_core_bf16;
  const bool has_bf16 = (static_cast<unsigned>(isa) & kWanted) == kWanted;
  if (precision == Precision::kTf32 || precision == Precision::kF16) {
    return absl::FailedPreconditionError(
        absl::StrCat("precision ", PrecisionName(precision),
                     " needs a GPU; on a CPU use f32, or bf16 where it has AVX512_BF16"));
  }
  if (precision == Precision::kBf16 && !has_bf16) {
    return absl::FailedPreconditionError(
        absl::StrCat("precision bf16 needs a CPU with AVX512_BF16; this machine has ",
                     InstructionSet(isa), "; use f32"));
  }
  return absl::OkStatus();
}

CpuExecutable::CpuExecutable(const Graph& model, const OptimizerSpec& optimizer,
                             const CompileOptions& options, Backing backing)
    : options_(options),
      backing_(backing),
      model_(model),
      training_(BuildTrainingStep(model, {options.passes, options.inspect, options.max_groups})),
      evaluation_(BuildEvaluationStep(model, {options.passes, options.inspect})),
      layout_(LayOutReduction(training_)),
      table_(BuildStateTable(model, layout_, optimizer)),
      updater_(optimizer, table_, layout_.gradient_elements, options.threads, backing),
      exchanged_(layout_, options, backing),
      statistics_(layout_.statistic_elements * int64_t{sizeof(float)}, backing),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      weights_(engine_, backing),
      ranks_(options) {
  slots_.resize(static_cast<size_t>(std::max(1, options.microbatch_slots)));
  AddBoundaries();
}

absl::Status CpuExecutable::CompileLargest() {
  TY_RETURN_IF_ERROR(Prepare(training_, training_programs_, options_.max_rows).status());
  TY_RETURN_IF_ERROR(Prepare(evaluation_, evaluation_programs_, options_.max_rows).status());
  return absl::OkStatus();
}

void CpuExecutable::UpdatePlan() {
  plan_.parameters = exchanged_.parameter_bytes() + statistics_.bytes();
  plan_.optimizer = updater_.state().bytes();
  plan_.gradients = exchanged_.gradient_bytes();
  plan_.activations = arena_bytes_ * static_cast<int64_t>(slots_.size()) + boundary_bytes_;
  plan_.workspace = weights_.bytes() + updater_.workspace_bytes();
  const auto largest = training_programs_.find(options_.max_rows);
  if (largest != training_programs_.end()) {
    plan_.activations_unshared =
        largest->second->unshared_bytes() * static_cast<int64_t>(slots_.size()) + boundary_bytes_;
    plan_.kernels =
        kLibraryBytes + kBytesPerCall * static_cast<int64_t>(largest->second->calls().size());
  }
}

std::map<std::string, int64_t> CpuExecutable::CallsByOp() const {
  return training_programs_.at(options_.max_rows)->CallsByOp();
}

// All programs share the arena of a slot, which is as large as the largest one needs. What it keeps
// from a Forward stays in place.
void CpuExecutable::GrowArenas(const Program& program) {
  if (program.arena_bytes() <= arena_bytes_) return;
  arena_bytes_ = program.arena_bytes();
  if (backing_ == Backing::kAddresses) return;
  for (Slot& slot : slots_) {
    AlignedBuffer larger;
    // Releases the old arena before the larger one is allocated.
    if (slot.rows == 0) slot.arena = AlignedBuffer();
    larger = AlignedBuffer(arena_bytes_);
    std::copy_n(slot.arena.data(), slot.arena.bytes(), larger.data());
    slot.arena = std::move(larger);
  }
}

absl::StatusOr<Program*> CpuExecutable::Prepare(const StepGraph& step, Programs& programs,
                                                int64_t rows) {
  std::unique_ptr<Program>& slot = programs[rows];
  if (slot != nullptr) {
    return slot.get();
  }
  auto program = std::make_unique<Program>();
  program->stage_input_block = &programs == &training_programs_ ? options_.stage_input.training
                                                                : options_.stage_input.evaluation;
  const auto largest = programs.find(options_.max_rows);
  const Program* const larger = largest == programs.end() ? nullptr : largest->second.get();
  try {
    const ScopedThreads threads(options_);
    const StateMemory state = {exchanged_.parameters(), statistics_.as<float>(),
                               exchanged_.reduction()};
    const NumberType type =
        options_.precision == Precision::kBf16 ? NumberType::kBf16 : NumberType::kF32;
    Compile(step, layout_, state,
            {.rows = rows,
             .largest_rows = options_.max_rows,
             .threads = options_.threads,
             .deterministic = options_.deterministic,
             .type = type,
             .is_guarded = options_.inspect},
            engine_, stream_, weights_, larger, *program);
    slot = std::move(program);
    last_rows_ = 0;
    GrowArenas(*slot);
  } catch (const dnnl::error& error) {
    slot = nullptr;
    return FromError(error);
  }
  UpdatePlan();
  return slot.get();
}

float* CpuExecutable::StatePointer(size_t index) const {
  const int64_t offset = table_.offsets[index];
  switch (table_.tensors[index].kind) {
    case StateTensor::Kind::kParameter:
      return exchanged_.parameters() + offset;
    case StateTensor::Kind::kBuffer:
      return statistics_.as<float>() + offset;
    case StateTensor::Kind::kOptimizerSlot:
      return updater_.state().slots() + offset;
    case StateTensor::Kind::kAverage:
      return updater_.state().averages() + offset;
  }
  return nullptr;
}

absl::Status CpuExecutable::ReadState(size_t index, absl::Span<float> values) const {
  TY_RETURN_IF_ERROR(CheckStateAccess(table_, index, values.size()));
  std::memcpy(values.data(), StatePointer(index), values.size() * sizeof(float));
  return absl::OkStatus();
}

absl::Status CpuExecutable::WriteState(size_t index, absl::Span<const float> values) {
  TY_RETURN_IF_ERROR(CheckStateAccess(table_, index, values.size()));
  std::memcpy(StatePointer(index), values.data(), values.size() * sizeof(float));
  weights_.Invalidate();
  return absl::OkStatus();
}

absl::Status CpuExecutable::Run(Program& program, const float* inputs, size_t calls,
                                RunState& state, const ReadyCallback& on_ready,
                                std::vector<double>* seconds, size_t first, int slot) {
  try {
    const ScopedThreads threads(options_);
    weights_.Refresh(program.packed_weights, stream_);
    program.Bind(slots_[static_cast<size_t>(slot)].arena.data());
    program.Run(inputs, calls, state, on_ready, seconds, first);
  } catch (const dnnl::error& error) {
    return FromError(error);
  }
  return state.status;
}

absl::Status CpuExecutable::TakePartInStatistics(const ReadyCallback& on_ready) {
  if (!ranks_.is_wanted()) return Executable::TakePartInStatistics(on_ready);
  TY_RETURN_IF_ERROR(ranks_.TakePart(training_));
  if (on_ready) on_ready(0, layout_.size);
  return absl::OkStatus();
}

RunState CpuExecutable::TrainingState(const Batch& batch) {
  groups_.Set(batch.groups);
  RunState state;
  state.labels = batch.labels.data();
  state.position = batch.position;
  state.groups = &groups_;
  state.ranks = ranks_.is_wanted() ? &ranks_ : nullptr;
  return state;
}

absl::Status CpuExecutable::Accumulate(const Batch& batch, double weight,
                                       const ReadyCallback& on_ready) {
  TY_RETURN_IF_ERROR(CheckBatch(model_, batch, options_.max_rows));
  const int64_t rows = RowsOf(model_, batch);
  TY_RETURN_IF_ERROR(CheckStatistics(training_, options_, batch.groups, rows));
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(training_, training_programs_, rows));
  RunState state = TrainingState(batch);
  TY_RETURN_IF_ERROR(RunToReduction(*program, batch.inputs.data(), /*first=*/0, /*slot=*/0, rows,
                                    weight, state, on_ready));
  last_rows_ = rows;
  last_loss_ = state.loss;
  return absl::OkStatus();
}

absl::Status CpuExecutable::RunToReduction(Program& program, const float* inputs, size_t first,
                                           int slot, int64_t rows, double weight, RunState& state,
                                           const ReadyCallback& on_ready) {
  const double labels = static_cast<double>(rows * model_.labels_per_row());
  state.gradient_scale = static_cast<float>(weight / labels);
  state.accumulate = has_sums_;
  has_sums_ = true;
  // The range after the gradients becomes ready together with the statistics, below.
  int64_t ready = 0;
  ReadyCallback gradient_ready;
  if (on_ready) {
    gradient_ready = [&](int64_t offset, int64_t count) {
      ready = offset + count;
      on_ready(offset, count);
    };
  }
  TY_RETURN_IF_ERROR(
      Run(program, inputs, program.calls().size(), state, gradient_ready, nullptr, first, slot));
  FoldStatistics(program, rows, weight);
  float* sums = exchanged_.reduction();
  sums[layout_.loss_offset] += static_cast<float>(weight * state.loss);
  sums[layout_.correct_offset] +=
      static_cast<float>(weight * static_cast<double>(state.correct) / labels);
  if (on_ready) on_ready(ready, layout_.size - ready);
  return absl::OkStatus();
}

void CpuExecutable::FoldStatistics(const Program& program, int64_t rows, double weight) {
  float* sums = exchanged_.reduction();
  for (size_t i = 0; i < training_.statistics.size(); ++i) {
    const BatchStatistics& statistics = training_.statistics[i];
    const ReductionEntry& entry = layout_.entry(statistics.running_mean);
    const int64_t variance_offset = layout_.entry(statistics.running_variance).offset;
    for (int64_t group = 0; group < groups_.count(); ++group) {
      const float* mean = program.ptr<float>(program.statistics[i].first) + group * entry.count;
      const float* variance =
          program.ptr<float>(program.statistics[i].second) + group * entry.count;
      const int64_t of_group = groups_.rows(group, rows);
      const double count = static_cast<double>((ranks_.is_wanted() ? ranks_.rows() : of_group) *
                                               statistics.count_per_row);
      const double share = weight * static_cast<double>(of_group) / static_cast<double>(rows);
      for (int64_t c = 0; c < entry.count; ++c) {
        sums[entry.offset + c] += static_cast<float>(share * mean[c]);
        sums[variance_offset + c] += static_cast<float>(share * variance[c] * count / (count - 1));
      }
    }
  }
}

absl::Status CpuExecutable::ExchangeAverages() {
  TY_RETURN_IF_ERROR(CheckHasAverages(table_));
  updater_.state().ExchangeAverages(exchanged_.parameters());
  weights_.Invalidate();
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> CpuExecutable::Evaluate(const Batch& batch) {
  TY_RETURN_IF_ERROR(CheckBatch(model_, batch, options_.max_rows));
  TY_ASSIGN_OR_RETURN(Program * program,
                      Prepare(evaluation_, evaluation_programs_, RowsOf(model_, batch)));
  last_rows_ = 0;
  RunState state;
  state.labels = batch.labels.data();
  state.counts_top5 = true;
  TY_RETURN_IF_ERROR(
      Run(*program, batch.inputs.data(), program->calls().size(), state, nullptr, nullptr));
  const int64_t labels = static_cast<int64_t>(batch.labels.size());
  return Evaluation{state.loss * static_cast<double>(labels), state.correct, labels, state.top5};
}

absl::StatusOr<std::vector<float>> CpuExecutable::Predict(absl::Span<const float> inputs) {
  const int64_t rows = static_cast<int64_t>(inputs.size()) / ElementCount(model_.input_shape());
  TY_RETURN_IF_ERROR(CheckInputs(model_, inputs, rows, options_.max_rows));
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(evaluation_, evaluation_programs_, rows));
  last_rows_ = 0;
  RunState state;
  // The last call is the loss, which needs labels.
  TY_RETURN_IF_ERROR(
      Run(*program, inputs.data(), program->calls().size() - 1, state, nullptr, nullptr));
  const float* logits = program->ptr<float>(program->logits);
  return std::vector<float>(logits, logits + model_.value(model_.logits).Elements(rows));
}

absl::StatusOr<Inspection> CpuExecutable::Inspect() const {
  if (!options_.inspect || last_rows_ == 0) {
    return Executable::Inspect();
  }
  const Program& program = *training_programs_.at(last_rows_);
  Inspection inspection;
  inspection.loss = last_loss_;
  const float* logits = program.ptr<float>(program.logits);
  inspection.logits.assign(logits, logits + model_.value(model_.logits).Elements(last_rows_));
  if (program.input_gradient >= 0) {
    const float* gradient = program.ptr<float>(program.input_gradient);
    inspection.input_gradient.assign(gradient,
                                     gradient + last_rows_ * ElementCount(model_.input_shape()));
  }
  return inspection;
}

absl::StatusOr<std::vector<CallProfile>> CpuExecutable::Profile(const Batch& batch, int repeats) {
  TY_RETURN_IF_ERROR(CheckBatch(model_, batch, options_.max_rows));
  const int64_t rows = RowsOf(model_, batch);
  TY_RETURN_IF_ERROR(CheckStatistics(training_, options_, batch.groups, rows));
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(training_, training_programs_, rows));
  std::vector<double> seconds(program->calls().size(), 0.0);
  for (int i = 0; i < repeats; ++i) {
    RunState state = TrainingState(batch);
    TY_RETURN_IF_ERROR(
        Run(*program, batch.inputs.data(), program->calls().size(), state, nullptr, &seconds));
  }
  has_sums_ = true;
  std::vector<CallProfile> profiles;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Call& call = program->calls()[i];
    profiles.push_back({call.name, seconds[i] / repeats, call.flops});
  }
  return profiles;
}

}  // namespace trainyard::engine::cpu
