// Names every tensor as PyTorch does, so that other programs can load the files.
#include "worker/trainer/run/training_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "worker/checkpoint/safetensors.h"

namespace trainyard::trainer {
namespace {

using engine::StateTensor;

constexpr char kModelFile[] = "model.safetensors";
constexpr char kOptimizerFile[] = "optimizer.safetensors";
constexpr char kAverageFile[] = "ema.safetensors";
constexpr char kStateFile[] = "state.json";

absl::string_view FileOf(const StateTensor& tensor) {
  switch (tensor.kind) {
    case StateTensor::Kind::kOptimizerSlot:
      return kOptimizerFile;
    case StateTensor::Kind::kAverage:
      return kAverageFile;
    case StateTensor::Kind::kParameter:
    case StateTensor::Kind::kBuffer:
      return kModelFile;
  }
  return kModelFile;
}

// Averages have the names of their parameters, so that their file loads as a model.
absl::string_view NameInFile(const StateTensor& tensor) {
  absl::string_view name = tensor.name;
  if (tensor.kind == StateTensor::Kind::kAverage) {
    name = absl::StripPrefix(name, engine::kAveragePrefix);
  }
  return name;
}

bool HasAverages(const std::vector<StateTensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const StateTensor& tensor) {
    return tensor.kind == StateTensor::Kind::kAverage;
  });
}

// Moves the tensor's values from `file` into the executable.
absl::Status RestoreTensor(const checkpoint::TensorFile& file, absl::string_view path, size_t index,
                           engine::ModelState& executable) {
  const StateTensor& tensor = executable.state()[index];
  const std::string name(NameInFile(tensor));
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' has no tensor '", name,
                                                   "' of shape ", engine::ShapeString(tensor.shape),
                                                   "; it is of another model or optimizer"));
  }
  if (found->second.shape != tensor.shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", path, "': tensor '", name, "' has shape ", engine::ShapeString(found->second.shape),
        "; the model's is ", engine::ShapeString(tensor.shape)));
  }
  TY_ASSIGN_OR_RETURN(const std::vector<float> values, checkpoint::FloatValues(found->second));
  return executable.WriteState(index, values);
}

}  // namespace

std::string ModelDigest(const engine::ModelState& executable) {
  std::string text;
  for (const StateTensor& tensor : executable.state()) {
    if (FileOf(tensor) != kModelFile) continue;
    absl::StrAppend(&text, tensor.kind == StateTensor::Kind::kParameter ? "parameter " : "buffer ",
                    tensor.name, " ", engine::ShapeString(tensor.shape), "\n");
  }
  return ContentHash(text);
}

std::string StatePath(const std::string& checkpoint_dir) {
  return JoinPath(checkpoint_dir, kStateFile);
}

absl::StatusOr<StateSnapshot> TakeSnapshot(const engine::ModelState& executable, int64_t step,
                                           int64_t epoch, const RunIdentity& identity) {
  StateSnapshot snapshot{.step = step,
                         .epoch = epoch,
                         .identity = identity,
                         .tensors = executable.state(),
                         .values = {},
                         .evaluation = {}};
  for (size_t i = 0; i < snapshot.tensors.size(); ++i) {
    const int64_t count = engine::ElementCount(snapshot.tensors[i].shape);
    std::vector<float>& values = snapshot.values.emplace_back(static_cast<size_t>(count));
    TY_RETURN_IF_ERROR(executable.ReadState(i, absl::MakeSpan(values)));
  }
  return snapshot;
}

std::vector<checkpoint::CheckpointFile> EncodeSnapshot(const StateSnapshot& snapshot) {
  std::map<std::string, checkpoint::TensorFile> files{{kModelFile, {}}, {kOptimizerFile, {}}};
  const bool has_averages = HasAverages(snapshot.tensors);
  for (size_t i = 0; i < snapshot.tensors.size(); ++i) {
    const StateTensor& tensor = snapshot.tensors[i];
    const std::string name(NameInFile(tensor));
    const auto add_to = [&](absl::string_view file) {
      files[std::string(file)].tensors[name] =
          checkpoint::FloatTensor(tensor.shape, snapshot.values[i].data());
    };
    add_to(FileOf(tensor));
    if (has_averages && tensor.kind == StateTensor::Kind::kBuffer) add_to(kAverageFile);
  }
  std::vector<checkpoint::CheckpointFile> encoded;
  for (const char* name : {kModelFile, kOptimizerFile, kAverageFile}) {
    const auto file = files.find(name);
    if (file != files.end()) {
      encoded.push_back({name, checkpoint::EncodeSafetensors(file->second)});
    }
  }
  encoded.push_back({kStateFile, EncodeState({.step = snapshot.step,
                                              .epoch = snapshot.epoch,
                                              .identity = snapshot.identity,
                                              .version = Version(),
                                              .evaluation = snapshot.evaluation})});
  return encoded;
}

absl::StatusOr<RestoredState> RestoreState(const std::string& checkpoint_dir,
                                           engine::ModelState& executable) {
  TY_ASSIGN_OR_RETURN(const StateRecord state, ReadState(StatePath(checkpoint_dir)));
  const bool has_averages = HasAverages(executable.state());
  if (has_averages && !FileExists(JoinPath(checkpoint_dir, kAverageFile))) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", checkpoint_dir, "' has no ", kAverageFile,
                     "; it is of a run without moving averages: set optimizer.ema_decay to 0"));
  }
  std::map<std::string, checkpoint::TensorFile> files;
  for (const char* name : {kModelFile, kOptimizerFile, kAverageFile}) {
    if (absl::string_view(name) == kAverageFile && !has_averages) continue;
    TY_ASSIGN_OR_RETURN(files[name], checkpoint::ReadSafetensors(JoinPath(checkpoint_dir, name)));
  }
  for (size_t i = 0; i < executable.state().size(); ++i) {
    const std::string file(FileOf(executable.state()[i]));
    TY_RETURN_IF_ERROR(RestoreTensor(files[file], JoinPath(checkpoint_dir, file), i, executable));
  }
  return RestoredState{.step = state.step, .init_digest = state.identity.init_digest};
}

}  // namespace trainyard::trainer
