// Implements the memory of an executable, and its programs for each number of rows.
#include "worker/engine/backend/cuda/cuda_executable.h"

#include <algorithm>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/compiler.h"
#include "worker/engine/backend/cuda/kernels/norm.h"
#include "worker/engine/backend/cuda/tuning/choices.h"

namespace trainyard::engine::cuda {
namespace {

// The memory of a device that a process takes beside our buffers, for the context, a handle of each
// library, and the libraries' kernels. It is a guess on the safe side until it is measured.
constexpr int64_t kContextBytes = int64_t{600} << 20;

Type StorageOf(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return Type::kBf16;
    case Precision::kF16:
      return Type::kF16;
    default:
      return Type::kF32;
  }
}

constexpr char kLossScaleName[] = "loss_scale";

}  // namespace

CudaExecutable::CudaExecutable(const Graph& model, const OptimizerSpec& optimizer,
                               const CompileOptions& options, std::shared_ptr<Planners> planners,
                               Backing backing)
    : options_(options),
      planners_(std::move(planners)),
      backing_(backing),
      model_(model),
      training_(BuildTrainingStep(model, {options.passes, options.inspect, options.max_groups})),
      evaluation_(BuildEvaluationStep(model, {options.passes, options.inspect})),
      layout_(LayOutReduction(training_)),
      table_(BuildStateTable(model, layout_, optimizer)),
      type_(StorageOf(options.precision)),
      slots_(static_cast<size_t>(std::max(1, options.microbatch_slots))) {
  if (options.precision == Precision::kF16) {
    table_.tensors.push_back(
        {StateTensor::Kind::kOptimizerSlot, kLossScaleName, {2}, {Initializer::Kind::kBegun}});
    table_.offsets.push_back(0);
  }
}

CudaExecutable::~CudaExecutable() {
  if (stream_ == nullptr) return;
  waiter_.set_watch({});  // Memory must not be freed before the device has ended.
  (void)Wait();
  planners_->convolutions->ReleaseStream();
}

absl::StatusOr<std::unique_ptr<CudaExecutable>> CudaExecutable::Create(
    const Graph& model, const OptimizerSpec& optimizer, const CompileOptions& options,
    std::shared_ptr<Planners> planners, Backing backing) {
  auto executable = std::unique_ptr<CudaExecutable>(
      new CudaExecutable(model, optimizer, options, std::move(planners), backing));
  TY_RETURN_IF_ERROR(executable->Allocate(optimizer));
  TY_RETURN_IF_ERROR(
      executable->Prepare(executable->training_, executable->training_programs_, options.max_rows)
          .status());
  TY_RETURN_IF_ERROR(
      executable
          ->Prepare(executable->evaluation_, executable->evaluation_programs_, options.max_rows)
          .status());
  executable->UpdatePlan();
  return executable;
}

absl::Status CudaExecutable::Allocate(const OptimizerSpec& optimizer) {
  const auto make = [this](int64_t bytes) { return DeviceBuffer::Create(bytes, backing_); };
  const auto floats = [&make](int64_t count) { return make(count * int64_t{sizeof(float)}); };
  TY_ASSIGN_OR_RETURN(parameters_, floats(layout_.gradient_elements));
  TY_ASSIGN_OR_RETURN(statistics_, floats(layout_.statistic_elements));
  const DeviceAllocator& shared = planners_->shared_memory;
  const bool is_shared = options_.shares_memory && shared.allocate && backing_ == Backing::kMemory;
  TY_ASSIGN_OR_RETURN(reduction_, is_shared ? DeviceBuffer::CreateFrom(
                                                  shared, layout_.size * int64_t{sizeof(float)})
                                            : floats(layout_.size));
  for (int slot = 0; slot < options_.sum_slots; ++slot) {
    TY_ASSIGN_OR_RETURN(DeviceBuffer sums, floats(layout_.size));
    sums_.push_back(std::move(sums));
  }
  TY_RETURN_IF_ERROR(AllocateBoundaries());
  TY_ASSIGN_OR_RETURN(totals_, make(sizeof(LossTotals)));
  TY_ASSIGN_OR_RETURN(tickets_, make(kNormTickets));
  if (HasBranches()) {
    TY_ASSIGN_OR_RETURN(side_, SideStream::Create(backing_));
  }
  const int64_t labels = options_.max_rows * model_.labels_per_row();
  TY_ASSIGN_OR_RETURN(loss_workspace_, make(LossWorkspace(labels)));
  TY_ASSIGN_OR_RETURN(weights_, PackedWeights::Create(training_, evaluation_, layout_,
                                                      parameters_.as<float>(), type_, backing_));
  const UpdaterOptions updates = {.scales_loss = options_.precision == Precision::kF16,
                                  .owned = options_.owned};
  TY_ASSIGN_OR_RETURN(updater_, Updater::Create(optimizer, table_, training_, layout_, weights_,
                                                updates, backing_));
  if (!updater_.owned().is_whole() && backing_ == Backing::kMemory) {
    whole_slots_.resize(static_cast<size_t>(updater_.slot_count() * layout_.gradient_elements));
  }
  TY_ASSIGN_OR_RETURN(ranks_, RankSums::Create(options_, training_, kUpdatesInFlight, backing_));
  TY_ASSIGN_OR_RETURN(staging_, Staging::Create(InputBytesMax(), labels * int64_t{sizeof(int32_t)},
                                                options_.max_groups, backing_));
  if (backing_ == Backing::kAddresses) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(stream_, CreateStream());
  TY_ASSIGN_OR_RETURN(results_, PinnedBuffer::Create(kUpdatesInFlight * sizeof(StepResult)));
  for (Event& event : updated_) {
    TY_ASSIGN_OR_RETURN(event, CreateEvent());
  }
  return absl::OkStatus();
}

StepMemory CudaExecutable::Memory() const {
  StepMemory memory;
  memory.parameters = parameters_.as<float>();
  memory.statistics = statistics_.as<float>();
  memory.reduction = reduction_.as<float>();
  memory.loss_scale = updater_.loss_scale();
  memory.totals = totals_.as<LossTotals>();
  memory.loss_workspace = loss_workspace_.data();
  return memory;
}

absl::StatusOr<Program*> CudaExecutable::Prepare(const StepGraph& step, Programs& programs,
                                                 int64_t rows) {
  const auto found = programs.find(rows);
  if (found != programs.end()) return found->second.get();
  const auto largest = programs.find(options_.max_rows);
  const Program* const larger = largest == programs.end() ? nullptr : largest->second.get();
  auto program = std::make_unique<Program>();
  // Only the largest programs of a training are worth a measurement. They are compiled before it
  // begins; the others may be met inside a step, where the other ranks wait.
  const Effort effort = backing_ == Backing::kAddresses ? Effort::kEstimate
                        : rows == options_.max_rows     ? Effort::kMeasure
                                                        : Effort::kInherit;
  const CompileTarget target = {.rows = rows,
                                .is_training = &step == &training_,
                                .type = type_,
                                .tf32 = options_.precision == Precision::kTf32,
                                .is_guarded = options_.inspect,
                                .merges_ranks = ranks_.is_wanted(),
                                .is_halved = options_.microbatch_slots > 0,
                                .has_branches = HasBranches(),
                                .fusions = planners_->fusions,
                                .bytes_per_microsecond = planners_->bytes_per_microsecond,
                                .effort = effort,
                                .planner = planners_->convolutions.get(),
                                .products = planners_->products.get()};
  const absl::Status compiled =
      Compile(step, layout_, Memory(), weights_, target, larger, *program);
  planners_->convolutions->EndChoosing();  // before the program takes its memory
  TY_RETURN_IF_ERROR(compiled);
  NoteFallbacks(*program);
  Program* const made = program.get();
  programs[rows] = std::move(program);
  last_rows_ = 0;
  TY_RETURN_IF_ERROR(BindArena(*made));
  return made;
}

// All programs share the arena of a slot, which is as large as the largest of them needs. Outside
// of the halves of a step they are bound to that of slot 0.
absl::Status CudaExecutable::BindArena(Program& program) {
  const bool grows = program.arena_bytes() > arena_bytes_;
  arena_bytes_ = std::max(arena_bytes_, program.arena_bytes());
  if (backing_ == Backing::kAddresses) return absl::OkStatus();
  if (!grows) {
    BindSlot(program, 0);
    return absl::OkStatus();
  }
  TY_RETURN_IF_ERROR(Wait());
  launches_.clear();  // they contain addresses
  if (const absl::Status grown = GrowArenas(); !grown.ok()) {
    // No program may run in memory that is gone, so the next call compiles its own again.
    training_programs_.clear();
    evaluation_programs_.clear();
    ReleaseArenas();
    return grown;
  }
  for (Programs* all : {&training_programs_, &evaluation_programs_}) {
    for (auto& [any_rows, other] : *all) BindSlot(*other, 0);
  }
  UpdatePlan();
  return absl::OkStatus();
}

std::string CudaExecutable::MeasuredChoices() const {
  Choices choices = {.plans = planners_->convolutions->MeasuredChoices(), .products = {}};
  if (planners_->products != nullptr) choices.products = planners_->products->MeasuredChoices();
  return EncodeChoices(choices);
}

void CudaExecutable::NoteFallbacks(const Program& program) {
  for (const Fallback& fallback : program.fallbacks) {
    const bool is_new = fallbacks_.insert(fallback).second;
    // A plan is no run: whoever asked for it shows its fallbacks.
    if (!is_new || backing_ == Backing::kAddresses) continue;
    LogWarning("kernels of our own compute a layer, which may take long",
               {{"layer", fallback.layer}, {"op", fallback.op}, {"reason", fallback.reason}});
  }
}

void CudaExecutable::UpdatePlan() {
  plan_.parameters = parameters_.bytes() + statistics_.bytes();
  plan_.optimizer = updater_.state_bytes();
  plan_.gradients = reduction_.bytes();
  for (const DeviceBuffer& sums : sums_) plan_.gradients += sums.bytes();
  plan_.activations = SlotBytes();
  plan_.workspace = weights_.bytes() + updater_.workspace_bytes() + staging_.device_bytes() +
                    image_bytes_.bytes() + totals_.bytes() + tickets_.bytes() +
                    side_.device_bytes() + loss_workspace_.bytes() + ranks_.device_bytes();
  plan_.kernels = kContextBytes;
  const auto largest = training_programs_.find(options_.max_rows);
  if (largest != training_programs_.end()) {
    const int64_t arenas = AlignUpDevice(arena_bytes_) * static_cast<int64_t>(slots_.size());
    plan_.activations_unshared =
        largest->second->unshared_bytes() * static_cast<int64_t>(slots_.size()) +
        plan_.activations - arenas;
  }
}

std::map<std::string, int64_t> CudaExecutable::CallsByOp() const {
  return training_programs_.at(options_.max_rows)->CallsByOp();
}

std::vector<CallWork> CudaExecutable::StepWork() const {
  std::vector<CallWork> work = training_programs_.at(options_.max_rows)->Work();
  work.push_back(updater_.Work(weights_));
  return work;
}

int64_t CudaExecutable::StepNodes(int64_t rows) const {
  const auto found = launches_.find({.work = Work::kStep, .rows = rows});
  if (found == launches_.end()) return 0;
  return std::max_element(
             found->second.graphs.begin(), found->second.graphs.end(),
             [](const CapturedGraph& a, const CapturedGraph& b) { return a.nodes < b.nodes; })
      ->nodes;
}

absl::Status CudaExecutable::Wait() const {
  absl::Status waited = ranks_.Collect(stream_.get());
  waited.Update(ranks_.AwaitStream(stream_.get()));
  // If the other ranks are lost, the device has given up what waits for them.
  waited.Update(waiter_.ForStream(stream_.get(), "waiting for the device"));
  // The oldest step comes first.
  for (size_t i = 0; waited.ok() && i <= in_flight_.size(); ++i) {
    waited = ranks_.TakeRefusal(training_, in_flight_.size() - i);
  }
  return waited;
}

absl::Status CudaExecutable::Check(const Batch& batch) const {
  return CheckBatch(model_, batch, options_.max_rows, images_count_);
}

int64_t CudaExecutable::InputBytesMax() const {
  if (model_.has_stage_input) return 0;
  const int64_t rows = options_.max_rows;
  const int64_t elements = rows * ElementCount(model_.input_shape());
  const int64_t floats = elements * int64_t{sizeof(float)};
  if (model_.input_shape().size() != 3) return floats;
  // For tiny images, the descriptions of the rows and the stored bytes take more.
  return std::max(floats, AlignUpDevice(rows * int64_t{sizeof(StoredRow)}) + elements);
}

}  // namespace trainyard::engine::cuda
