// Reads and writes the state of a CudaExecutable, always in the port's order, and after everything
// that was enqueued before.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/kernels/update.h"
#include "worker/engine/backend/cuda/weight_order.h"

namespace trainyard::engine::cuda {

float* CudaExecutable::StatePointer(size_t index) const {
  const int64_t offset = table_.offsets[index];
  switch (table_.tensors[index].kind) {
    case StateTensor::Kind::kParameter:
      return parameters_.as<float>() + offset;
    case StateTensor::Kind::kBuffer:
      return statistics_.as<float>() + offset;
    case StateTensor::Kind::kOptimizerSlot:
      // The loss scale comes last, and is not one of the slots.
      if (updater_.loss_scale() != nullptr && index + 1 == table_.tensors.size()) {
        return reinterpret_cast<float*>(updater_.loss_scale());
      }
      if (offset == table_.step_offset) return updater_.step_count();
      return updater_.slots() + offset;
    case StateTensor::Kind::kAverage:
      return updater_.averages() + offset;
  }
  return nullptr;
}

bool CudaExecutable::IsDivided(size_t index) const {
  const bool is_slot = table_.tensors[index].kind == StateTensor::Kind::kOptimizerSlot;
  return is_slot && !updater_.owned().is_whole() && table_.offsets[index] != table_.step_offset;
}

absl::Status CudaExecutable::CopyOwnedIn(int64_t offset, absl::Span<const float> values) const {
  const int64_t slot = offset / layout_.gradient_elements;
  const int64_t begin = offset % layout_.gradient_elements;
  const int64_t end = begin + static_cast<int64_t>(values.size());
  float* const memory = updater_.slots() + slot * updater_.owned().stride();
  for (const OwnedSlots::Part& part : updater_.owned().parts()) {
    const int64_t first = std::max(begin, part.begin), last = std::min(end, part.end);
    if (first >= last) continue;
    TY_RETURN_IF_ERROR(CopyIn(
        memory + part.place + first - part.begin,
        values.subspan(static_cast<size_t>(first - begin), static_cast<size_t>(last - first))));
  }
  return absl::OkStatus();
}

absl::Status CudaExecutable::CopyBytesIn(void* to, const void* from, size_t bytes,
                                         absl::string_view what) const {
  TY_RETURN_IF_ERROR(Wait());
  return CopyToDevice(to, from, static_cast<int64_t>(bytes), what);
}

absl::Status CudaExecutable::CopyIn(float* to, absl::Span<const float> values) const {
  return CopyBytesIn(to, values.data(), values.size() * sizeof(float), "writing state");
}

absl::Status CudaExecutable::CopyOut(const float* from, absl::Span<float> values) const {
  TY_RETURN_IF_ERROR(Wait());
  return CudaStatus(
      cudaMemcpy(values.data(), from, values.size() * sizeof(float), cudaMemcpyDeviceToHost),
      "reading state");
}

absl::Status CudaExecutable::ReadState(size_t index, absl::Span<float> values) const {
  TY_RETURN_IF_ERROR(CheckStateAccess(table_, index, values.size()));
  if (!IsDivided(index)) {
    TY_RETURN_IF_ERROR(CopyOut(StatePointer(index), values));
  } else if (!whole_slots_.empty()) {
    std::copy_n(whole_slots_.begin() + table_.offsets[index], values.size(), values.begin());
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("state tensor '", table_.tensors[index].name,
                     "': other ranks have parts of it; call CompleteStates before"));
  }
  const Shape& shape = table_.tensors[index].shape;
  if (IsReordered(shape)) {
    const std::vector<float> ordered = ToPortOrder(shape, values);
    std::copy(ordered.begin(), ordered.end(), values.begin());
  }
  return absl::OkStatus();
}

absl::Status CudaExecutable::WriteState(size_t index, absl::Span<const float> values) {
  TY_RETURN_IF_ERROR(CheckStateAccess(table_, index, values.size()));
  are_weights_stale_ = true;
  const std::vector<float> ordered = ToDeviceOrder(table_.tensors[index].shape, values);
  if (!IsDivided(index)) return CopyIn(StatePointer(index), ordered);
  const int64_t offset = table_.offsets[index];
  if (!whole_slots_.empty()) {
    std::copy(ordered.begin(), ordered.end(), whole_slots_.begin() + offset);
  }
  return CopyOwnedIn(offset, ordered);
}

absl::Status CudaExecutable::ReadReduction(absl::Span<float> sums) {
  TY_CHECK(sums.size() == reduction().size());
  TY_RETURN_IF_ERROR(CopyOut(reduction_.as<float>(), sums));
  for (const ReductionEntry& entry : layout_.entries) {
    if (entry.kind != ReductionEntry::Kind::kGradient) continue;
    const absl::Span<float> mine =
        sums.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.count));
    const std::vector<float> ordered = ToPortOrder(model_.value(entry.target).shape, mine);
    std::copy(ordered.begin(), ordered.end(), mine.begin());
  }
  return absl::OkStatus();
}

absl::Status CudaExecutable::WriteReduction(absl::Span<const float> sums) {
  TY_CHECK(sums.size() == reduction().size());
  std::vector<float> device(sums.begin(), sums.end());
  for (const ReductionEntry& entry : layout_.entries) {
    if (entry.kind != ReductionEntry::Kind::kGradient) continue;
    const absl::Span<const float> mine =
        sums.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.count));
    const std::vector<float> ordered = ToDeviceOrder(model_.value(entry.target).shape, mine);
    std::copy(ordered.begin(), ordered.end(), device.begin() + entry.offset);
  }
  return CopyIn(reduction_.as<float>(), device);
}

absl::Status CudaExecutable::StoreImages(const ImageStore& images, int64_t bytes_max) {
  TY_RETURN_IF_ERROR(Wait());  // a step may still read the images that were stored before
  images_count_.reset();
  images_ = {};
  image_bytes_ = DeviceBuffer();
  UpdatePlan();
  TY_RETURN_IF_ERROR(CheckImageStore(model_, images, bytes_max));
  std::copy(images.mean.begin(), images.mean.end(), images_.mean);
  std::copy(images.stddev.begin(), images.stddev.end(), images_.stddev);
  const auto bytes = static_cast<int64_t>(images.pixels.size());
  if (bytes > 0) {
    TY_ASSIGN_OR_RETURN(image_bytes_, DeviceBuffer::Create(bytes, backing_));
    TY_RETURN_IF_ERROR(CopyBytesIn(image_bytes_.data(), images.pixels.data(), images.pixels.size(),
                                   "storing images"));
  }
  images_.pixels = image_bytes_.as<uint8_t>();
  images_count_ = bytes / ElementCount(model_.input_shape());
  UpdatePlan();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> CudaExecutable::ReadLogits(const Program& program,
                                                              int64_t rows) const {
  const int64_t classes = model_.classes();
  const int64_t vectors = rows * model_.value(model_.logits).Elements(1) / classes;
  TY_ASSIGN_OR_RETURN(
      const DeviceBuffer plain,
      DeviceBuffer::Create(vectors * classes * int64_t{sizeof(float)}, Backing::kMemory));
  const View logits = {program.ptr<void>(program.logits), program.logits_stride,
                       program.logits_type};
  Copy(logits, {plain.data(), classes, Type::kF32}, vectors, classes, false, stream_.get());
  TY_RETURN_IF_ERROR(LaunchStatus("reading logits"));
  std::vector<float> values(static_cast<size_t>(vectors * classes));
  TY_RETURN_IF_ERROR(CopyOut(plain.as<float>(), absl::MakeSpan(values)));
  return values;
}

absl::StatusOr<std::vector<float>> CudaExecutable::Predict(absl::Span<const float> inputs) {
  const int64_t rows = static_cast<int64_t>(inputs.size()) / ElementCount(model_.input_shape());
  TY_RETURN_IF_ERROR(CheckInputs(model_, inputs, rows, options_.max_rows));
  TY_ASSIGN_OR_RETURN(Program * program, Prepare(evaluation_, evaluation_programs_, rows));
  TY_RETURN_IF_ERROR(RefreshWeights());
  last_rows_ = 0;
  TY_RETURN_IF_ERROR(Send({.inputs = inputs, .labels = {}}, {}, 0, 0));
  // The last call is the loss, which needs labels.
  TY_RETURN_IF_ERROR(program->Run(0, program->calls().size() - 1, Evaluating()));
  TY_RETURN_IF_ERROR(staging_.Release(stream_.get()));
  return ReadLogits(*program, rows);
}

absl::StatusOr<Inspection> CudaExecutable::Inspect() const {
  if (!options_.inspect || last_rows_ == 0) return Executable::Inspect();
  const Program& program = *training_programs_.at(last_rows_);
  Inspection inspection;
  TY_ASSIGN_OR_RETURN(const std::vector<float> logits, ReadLogits(program, last_rows_));
  inspection.logits.assign(logits.begin(), logits.end());
  LossTotals totals;
  TY_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(&totals, totals_.data(), sizeof totals, cudaMemcpyDeviceToHost),
                 "reading the loss"));
  inspection.loss = totals.loss / static_cast<double>(last_rows_ * model_.labels_per_row());
  if (program.input_gradient != kNoBuffer) {
    std::vector<float> gradient(
        static_cast<size_t>(last_rows_ * ElementCount(model_.input_shape())));
    TY_RETURN_IF_ERROR(
        CopyOut(program.ptr<float>(program.input_gradient), absl::MakeSpan(gradient)));
    float scale = 1;
    if (updater_.loss_scale() != nullptr) {
      TY_RETURN_IF_ERROR(CopyOut(&updater_.loss_scale()->scale, absl::MakeSpan(&scale, 1)));
    }
    for (const float value : gradient) {
      inspection.input_gradient.push_back(static_cast<double>(value) / static_cast<double>(scale));
    }
  }
  return inspection;
}

}  // namespace trainyard::engine::cuda
