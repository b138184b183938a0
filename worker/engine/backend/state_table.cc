// Makes the tables of state tensors, and the checks that every backend makes of its arguments.
#include "worker/engine/backend/state_table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace trainyard::engine {

absl::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return "f32";
    case Precision::kTf32:
      return "tf32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kF16:
      return "f16";
  }
  return "";
}

int64_t CompilePlan::total_calls() const {
  int64_t total = 0;
  for (const auto& [op, count] : calls) total += count;
  return total;
}

StateTable BuildStateTable(const Graph& model, const ReductionLayout& layout,
                           const OptimizerSpec& optimizer) {
  StateTable table;
  auto add_all = [&](Role role, StateTensor::Kind kind, absl::string_view prefix, int64_t base) {
    for (size_t i = 0; i < model.values.size(); ++i) {
      const Value& value = model.values[i];
      if (value.role == role) {
        table.tensors.push_back(
            {kind, absl::StrCat(prefix, value.name), value.shape,
             kind == StateTensor::Kind::kParameter ? value.initializer : Initializer()});
        table.offsets.push_back(layout.entry(static_cast<ValueId>(i)).offset + base);
      }
    }
  };
  add_all(Role::kParameter, StateTensor::Kind::kParameter, "", 0);
  add_all(Role::kBuffer, StateTensor::Kind::kBuffer, "", -layout.gradient_elements);
  for (const std::string& slot : SlotNames(optimizer)) {
    add_all(Role::kParameter, StateTensor::Kind::kOptimizerSlot, absl::StrCat(slot, "."),
            table.slot_elements);
    table.slot_elements += layout.gradient_elements;
  }
  if (CountsSteps(optimizer)) {
    table.step_offset = table.slot_elements;
    table.tensors.push_back({StateTensor::Kind::kOptimizerSlot, "step", {1}});
    table.offsets.push_back(table.step_offset);
    ++table.slot_elements;
  }
  if (optimizer.ema_decay > 0) {
    add_all(Role::kParameter, StateTensor::Kind::kAverage, kAveragePrefix, 0);
    table.average_elements = layout.gradient_elements;
  }
  for (const ReductionEntry& entry : layout.entries) {
    if (entry.kind == ReductionEntry::Kind::kGradient) {
      table.segments.push_back(
          {entry.offset, entry.count, model.value(entry.target).shape.size() <= 1});
    }
  }
  return table;
}

absl::Status CheckStateAccess(const StateTable& table, size_t index, size_t count) {
  if (index >= table.tensors.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("state tensor ", index, "; expected below ", table.tensors.size()));
  }
  const StateTensor& tensor = table.tensors[index];
  if (static_cast<int64_t>(count) != ElementCount(tensor.shape)) {
    return absl::InvalidArgumentError(absl::StrCat("state tensor '", tensor.name, "': ", count,
                                                   " values; expected ",
                                                   ShapeString(tensor.shape)));
  }
  return absl::OkStatus();
}

int64_t RowsOf(const Graph& model, const Batch& batch) {
  return static_cast<int64_t>(batch.labels.size()) / model.labels_per_row();
}

namespace {

absl::Status CheckRows(int64_t rows, int64_t max_rows) {
  if (rows >= 1 && rows <= max_rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a batch of ", rows, " rows; expected 1 to ", max_rows));
}

}  // namespace

absl::Status CheckInputs(const Graph& model, absl::Span<const float> inputs, int64_t rows,
                         int64_t max_rows) {
  TY_RETURN_IF_ERROR(CheckRows(rows, max_rows));
  const int64_t expected = rows * ElementCount(model.input_shape());
  if (static_cast<int64_t>(inputs.size()) != expected) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", inputs.size(),
                                                   " input values; expected ", expected, ", ", rows,
                                                   " rows of ", ShapeString(model.input_shape())));
  }
  for (size_t i = 0; model.vocabulary > 0 && i < inputs.size(); ++i) {
    const float token = inputs[i];
    if (!(token >= 0 && token < static_cast<float>(model.vocabulary)) ||
        token != std::floor(token)) {
      return absl::InvalidArgumentError(absl::StrCat("token ", token, " at input value ", i,
                                                     "; expected an integer in [0, ",
                                                     model.vocabulary, ")"));
    }
  }
  return absl::OkStatus();
}

namespace {

absl::Status CheckStoredRows(const Graph& model, const Batch& batch, int64_t max_rows,
                             std::optional<int64_t> stored_images) {
  const auto rows = static_cast<int64_t>(batch.stored.size());
  if (!stored_images.has_value()) {
    return absl::FailedPreconditionError("a batch of stored images; expected StoreImages before");
  }
  TY_RETURN_IF_ERROR(CheckRows(rows, max_rows));
  if (!batch.inputs.empty() || rows != RowsOf(model, batch)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch of ", rows, " stored rows with ", batch.inputs.size(), " input values and ",
        batch.labels.size(), " labels; expected none and as many as rows"));
  }
  if (!batch.stored_pixels.empty()) {
    const int64_t expected = rows * ElementCount(model.input_shape());
    if (static_cast<int64_t>(batch.stored_pixels.size()) == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.stored_pixels.size(),
                                                   " bytes; expected ", expected, ", ", rows,
                                                   " rows of ", ShapeString(model.input_shape())));
  }
  for (size_t row = 0; row < batch.stored.size(); ++row) {
    const int64_t image = batch.stored[row].image;
    if (image < 0 || image >= *stored_images) {
      return absl::InvalidArgumentError(
          absl::StrCat("image ", image, " of row ", row, "; expected [0, ", *stored_images, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGroups(absl::Span<const int64_t> groups, int64_t rows) {
  int64_t sum = 0;
  for (const int64_t group : groups) {
    if (group < 1 || group > rows - sum) {
      return absl::InvalidArgumentError(absl::StrCat("a group of ", group, " rows behind ", sum,
                                                     "; expected groups of at least ",
                                                     "1 row that add up to ", rows));
    }
    sum += group;
  }
  if (groups.empty() || sum == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("groups of ", sum, " rows in all; expected ", rows));
}

}  // namespace

namespace {

absl::Status CheckLabels(const Graph& model, const Batch& batch) {
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] < 0 || batch.labels[i] >= model.classes()) {
      const int64_t row = static_cast<int64_t>(i) / model.labels_per_row();
      return absl::InvalidArgumentError(absl::StrCat("label ", batch.labels[i], " of row ", row,
                                                     "; expected [0, ", model.classes(), ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatch(const Graph& model, const Batch& batch, int64_t max_rows,
                        std::optional<int64_t> stored_images) {
  if (model.has_stage_input || !model.has_loss()) {
    return absl::FailedPreconditionError(
        "a stage of a pipeline by itself; expected Forward, Backward and EvaluateStage");
  }
  if (static_cast<int64_t>(batch.labels.size()) % model.labels_per_row() != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", batch.labels.size(),
                                                   " labels; expected ", model.labels_per_row(),
                                                   " a row"));
  }
  if (batch.stored.empty() && batch.stored_pixels.empty()) {
    TY_RETURN_IF_ERROR(CheckInputs(model, batch.inputs, RowsOf(model, batch), max_rows));
  } else {
    TY_RETURN_IF_ERROR(CheckStoredRows(model, batch, max_rows, stored_images));
  }
  TY_RETURN_IF_ERROR(CheckLabels(model, batch));
  return CheckGroups(batch.groups, RowsOf(model, batch));
}

absl::Status CheckStageBatch(const Graph& model, const Batch& batch, int64_t rows,
                             int64_t max_rows) {
  if (model.has_stage_input) {
    TY_RETURN_IF_ERROR(CheckRows(rows, max_rows));
  } else {
    TY_RETURN_IF_ERROR(CheckInputs(model, batch.inputs, rows, max_rows));
  }
  if (!batch.groups.empty()) {
    return absl::InvalidArgumentError("a microbatch in groups; expected one replica at most");
  }
  if (!model.has_loss()) return absl::OkStatus();
  const int64_t expected = rows * model.labels_per_row();
  if (static_cast<int64_t>(batch.labels.size()) != expected) {
    return absl::InvalidArgumentError(absl::StrCat("a microbatch of ", batch.labels.size(),
                                                   " labels; expected ", expected, " of ", rows,
                                                   " rows"));
  }
  return CheckLabels(model, batch);
}

absl::Status CheckSlot(const CompileOptions& options, int slot) {
  if (slot >= 0 && slot < options.microbatch_slots) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("slot ", slot, "; expected below microbatch_slots ", options.microbatch_slots));
}

absl::Status CheckForwardDone(int64_t forward_rows, int64_t rows, int slot) {
  if (forward_rows == rows) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("Backward of ", rows, " rows in slot ", slot, ", which keeps ", forward_rows,
                   "; expected Forward of the same microbatch before"));
}

absl::Status CheckImageStore(const Graph& model, const ImageStore& images, int64_t bytes_max) {
  const Shape shape = model.input_shape();
  const int64_t channels = shape.size() == 3 ? shape[0] : 0;
  if (channels < 1 || channels > kStoredChannelsMax || model.vocabulary > 0) {
    return absl::InvalidArgumentError(absl::StrCat("a model of input ", ShapeString(shape),
                                                   "; expected images of 1 to ", kStoredChannelsMax,
                                                   " channels"));
  }
  if (static_cast<int64_t>(images.mean.size()) != channels ||
      static_cast<int64_t>(images.stddev.size()) != channels) {
    return absl::InvalidArgumentError(absl::StrCat("means of ", images.mean.size(),
                                                   " channels and deviations of ",
                                                   images.stddev.size(), "; expected ", channels));
  }
  const auto bytes = static_cast<int64_t>(images.pixels.size());
  if (bytes % ElementCount(shape) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes of pixels; expected whole images of ", ShapeString(shape)));
  }
  if (bytes > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of images; expected ", bytes_max, " at most"));
  }
  return absl::OkStatus();
}

absl::Status CheckStatistics(const StepGraph& step, const CompileOptions& options,
                             absl::Span<const int64_t> groups, int64_t rows) {
  if (step.statistics.empty()) return absl::OkStatus();
  if (options.sum_statistics) {
    // The number of values is known only when those of all ranks are added up.
    if (groups.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        groups.size(), " groups of rows; expected none if statistics are those of ", "all ranks"));
  }
  if (static_cast<int64_t>(groups.size()) > options.max_groups) {
    return absl::InvalidArgumentError(absl::StrCat(groups.size(), " groups of rows; expected ",
                                                   options.max_groups, " at most, max_groups"));
  }
  const int64_t smallest = groups.empty() ? rows : *std::min_element(groups.begin(), groups.end());
  for (const BatchStatistics& statistics : step.statistics) {
    if (smallest * statistics.count_per_row < 2) {
      return absl::InvalidArgumentError(absl::StrCat("layer '", statistics.layer,
                                                     "': batch_norm over a single value per ",
                                                     "channel; expected at least 2"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckHasAverages(const StateTable& table) {
  return table.average_elements > 0
             ? absl::OkStatus()
             : absl::FailedPreconditionError("no moving averages; compile with ema_decay above 0");
}

absl::Status CheckCompileOptions(const CompileOptions& options) {
  if (options.max_rows < 1 || options.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("max_rows ", options.max_rows, ", threads ",
                                                   options.threads, "; expected at least 1"));
  }
  if (options.microbatch_slots < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("microbatch_slots ", options.microbatch_slots, "; expected at least 0"));
  }
  if (options.sum_slots < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sum_slots ", options.sum_slots, "; expected at least 0"));
  }
  int64_t end = 0;
  for (const ElementRange& range : options.owned) {
    if (range.begin < end || range.end <= range.begin) {
      return absl::InvalidArgumentError(
          absl::StrCat("owned elements [", range.begin, ", ", range.end,
                       "); expected ascending ranges from ", end, " on"));
    }
    end = range.end;
  }
  if (options.max_groups < 1 || options.max_groups > options.max_rows) {
    return absl::InvalidArgumentError(absl::StrCat("max_groups ", options.max_groups,
                                                   "; expected 1 to max_rows, ", options.max_rows));
  }
  if (options.statistics_rank < 0 || options.statistics_rank >= options.statistics_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("statistics_rank ", options.statistics_rank,
                                                   "; expected [0, ", options.statistics_ranks,
                                                   ")"));
  }
  if (options.sum_statistics && options.max_groups > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_groups ", options.max_groups, " with sum_statistics; expected 1"));
  }
  if (options.sum_statistics && options.microbatch_slots > 0) {
    return absl::InvalidArgumentError(absl::StrCat("microbatch_slots ", options.microbatch_slots,
                                                   " with sum_statistics; expected 0"));
  }
  return absl::OkStatus();
}

}  // namespace trainyard::engine
