// Matches the tensors of a file with those of the model by name, and says all at once what does not
// match.
#include "worker/trainer/run/initial_weights.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/datasets.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/to_floats.h"

namespace trainyard::trainer {
namespace {

using engine::StateTensor;

// The file of a checkpoint of ours that holds the weights.
constexpr char kWeightsFile[] = "model.safetensors";
// A message lists this many names and counts the rest.
constexpr size_t kNamesShown = 10;
constexpr int64_t kMaxFileBytes = int64_t{64} << 30;

bool IsOfModel(const StateTensor& tensor) {
  return tensor.kind == StateTensor::Kind::kParameter || tensor.kind == StateTensor::Kind::kBuffer;
}

// PyTorch's batch norms count their batches in a buffer that takes no part in the arithmetic.
bool IsCounter(absl::string_view name) {
  return absl::EndsWith(name, "num_batches_tracked");
}

std::string Listed(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", ");
  if (names.size() > shown) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

std::string Count(size_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// Returns the field that names the weights, and what it says.
const char* FieldOf(const v1::InitSpec& init) {
  return init.job().empty() ? "spec.init.checkpoint" : "spec.init.job";
}
const std::string& WeightsOf(const v1::InitSpec& init) {
  return init.job().empty() ? init.checkpoint() : init.job();
}

absl::StatusOr<std::string> PathOf(const v1::InitSpec& init, const InitFolders& folders) {
  if (!init.job().empty()) {
    if (!folders.checkpoint.empty()) return JoinPath(folders.checkpoint, kWeightsFile);
    return InvalidFields({{FieldOf(init), absl::StrCat("'", init.job(),
                                                       "' is a checkpoint that only a server can "
                                                       "send; by hand, write its folder into "
                                                       "init_from of assignment.json")}});
  }
  if (!datasets::StaysBelow(init.checkpoint())) {
    return InvalidFields({{FieldOf(init), absl::StrCat("'", init.checkpoint(),
                                                       "' leads out of the folder of data sets")}});
  }
  if (folders.datasets.empty()) {
    return error::InitNotFound(init.checkpoint(),
                               "it nowhere, since no folder of data sets is set");
  }
  return JoinPath(folders.datasets, init.checkpoint());
}

absl::StatusOr<std::string> ReadInit(const v1::InitSpec& init, const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(bytes.status())) return error::InitNotFound(WeightsOf(init), path);
  if (!bytes.ok()) return Annotate(bytes.status(), "init.checkpoint");
  // torch.save writes a zip archive or a pickle, which begin in this way.
  if (absl::StartsWith(*bytes, "PK\x03\x04") || absl::StartsWith(*bytes, "\x80\x02")) {
    return InvalidFields(
        {{FieldOf(init),
          absl::StrCat("'", WeightsOf(init),
                       "' is a file of torch.save; expected safetensors: "
                       "safetensors.torch.save_file(model.state_dict(), FILE) writes it")}});
  }
  return bytes;
}

// Finds the tensors of the file that belong to the model, and what does not match.
class Matcher {
 public:
  Matcher(const v1::InitSpec& init, const checkpoint::TensorFile& file)
      : init_(init), file_(file), skip_is_used_(static_cast<size_t>(init.skip_size()), false) {}

  // Returns true if the model's tensor is to be loaded.
  bool Takes(const StateTensor& tensor) {
    known_.insert(tensor.name);
    if (IsSkipped(tensor.name)) return false;
    const auto found = file_.tensors.find(tensor.name);
    if (found == file_.tensors.end()) {
      missing_.push_back(absl::StrCat("'", tensor.name, "' ", engine::ShapeString(tensor.shape)));
      layers_.insert(LayerOf(tensor.name));
    } else if (found->second.shape != tensor.shape) {
      reshaped_.push_back(absl::StrCat("'", tensor.name, "' is ",
                                       engine::ShapeString(found->second.shape), ", the model's ",
                                       engine::ShapeString(tensor.shape)));
      layers_.insert(LayerOf(tensor.name));
    }
    return true;
  }

  absl::Status Judge() && {
    std::vector<std::string> unexpected;
    for (const auto& [name, tensor] : file_.tensors) {
      if (IsSkipped(name) || known_.contains(name) || IsCounter(name)) continue;
      unexpected.push_back(absl::StrCat("'", name, "' ", engine::ShapeString(tensor.shape)));
      surplus_.insert(LayerOf(name));
    }
    std::vector<FieldViolation> violations;
    const auto add = [&](const std::vector<std::string>& names, absl::string_view what) {
      if (names.empty()) return;
      violations.push_back(
          {FieldOf(init_), absl::StrCat("'", WeightsOf(init_), "' ", what, ": ", Listed(names))});
    };
    add(missing_, absl::StrCat("lacks ", Count(missing_.size(), "tensor"), " of the model"));
    add(unexpected,
        absl::StrCat("has ", Count(unexpected.size(), "tensor"), " that the model has not"));
    add(reshaped_, absl::StrCat("has ", Count(reshaped_.size(), "tensor"), " of another shape"));
    if (!violations.empty()) absl::StrAppend(&violations.back().description, Hint());
    for (size_t i = 0; i < skip_is_used_.size(); ++i) {
      if (skip_is_used_[i]) continue;
      violations.push_back(
          {absl::StrCat("spec.init.skip[", i, "]"),
           absl::StrCat("'", init_.skip(static_cast<int>(i)),
                        "' begins no name, neither of the model nor of '", WeightsOf(init_), "'")});
    }
    return violations.empty() ? absl::OkStatus() : InvalidFields(violations);
  }

 private:
  // If more layers than these differ, the file belongs to another model, and not to one with
  // another classifier.
  static constexpr size_t kLayersHinted = 3;

  bool IsSkipped(absl::string_view name) {
    bool skipped = false;
    for (size_t i = 0; i < skip_is_used_.size(); ++i) {
      if (!absl::StartsWith(name, init_.skip(static_cast<int>(i)))) continue;
      skip_is_used_[i] = true;
      skipped = true;
    }
    return skipped;
  }

  // Returns "fc." for "fc.weight", and the whole of a name without a layer.
  static std::string LayerOf(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(0, dot + 1);
  }

  // Returns what makes the file fit: the present prefixes that serve, and those of all that does
  // not fit.
  std::string Hint() const {
    std::set<std::string> more = layers_;
    more.insert(surplus_.begin(), surplus_.end());
    if (more.size() > kLayersHinted) return "";
    std::vector<std::string> prefixes;
    for (size_t i = 0; i < skip_is_used_.size(); ++i) {
      if (skip_is_used_[i]) prefixes.push_back(init_.skip(static_cast<int>(i)));
    }
    prefixes.insert(prefixes.end(), more.begin(), more.end());
    const char* aim = surplus_.empty() ? "to start them at random values"
                      : layers_.empty()
                          ? "to leave them out"
                          : "to start at random values what does not fit, and to leave "
                            "out what the model has not";
    return absl::StrCat("; ", aim, ", write init.skip: [", absl::StrJoin(prefixes, ", "), "]");
  }

  const v1::InitSpec& init_;
  const checkpoint::TensorFile& file_;
  std::vector<bool> skip_is_used_;
  std::set<std::string> known_;
  std::set<std::string> layers_;   // of the model, which the file lacks or has in other shapes
  std::set<std::string> surplus_;  // of the file, which the model has not
  std::vector<std::string> missing_;
  std::vector<std::string> reshaped_;
};

}  // namespace

absl::StatusOr<std::string> LoadInitialWeights(const v1::InitSpec& init, const InitFolders& folders,
                                               engine::ModelState& executable) {
  TY_ASSIGN_OR_RETURN(const std::string path, PathOf(init, folders));
  TY_ASSIGN_OR_RETURN(const std::string bytes, ReadInit(init, path));
  const std::string digest = ContentHash(bytes);
  if (!init.digest().empty() && init.digest() != digest) {
    return InvalidFields(
        {{"spec.init.digest", absl::StrCat("is '", init.digest(), "', but '", WeightsOf(init),
                                           "' here is '", digest, "'")}});
  }
  const absl::StatusOr<checkpoint::TensorFile> file = checkpoint::DecodeSafetensors(bytes);
  if (!file.ok()) {
    return error::CorruptFile(path, file.status().message());
  }
  Matcher matcher(init, *file);
  std::vector<size_t> taken;
  for (size_t i = 0; i < executable.state().size(); ++i) {
    const StateTensor& tensor = executable.state()[i];
    if (IsOfModel(tensor) && matcher.Takes(tensor)) taken.push_back(i);
  }
  TY_RETURN_IF_ERROR(std::move(matcher).Judge());
  for (const size_t i : taken) {
    const std::string& name = executable.state()[i].name;
    const absl::StatusOr<std::vector<float>> values = checkpoint::ToFloats(file->tensors.at(name));
    if (!values.ok()) {
      return InvalidFields({{FieldOf(init), absl::StrCat("'", WeightsOf(init), "': tensor '", name,
                                                         "' ", values.status().message())}});
    }
    TY_RETURN_IF_ERROR(executable.WriteState(i, *values));
  }
  LogInfo("initial weights", {{"checkpoint", WeightsOf(init)},
                              {"digest", digest},
                              {"tensors", absl::StrCat(taken.size())}});
  return digest;
}

}  // namespace trainyard::trainer
