// Opens texts and reads all samples of them.
#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tests/testing/temp_dir.h"
#include "worker/data/open_dataset.h"

namespace trainyard::fuzz::tokens {
namespace {

// The first bytes are the form of the file, the tokens of a sample and the vocabulary.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const bool has_numbers = input.Below(2) == 0;
  const auto context = static_cast<int64_t>(input.Below(64));
  const auto vocabulary = static_cast<int64_t>(input.Byte());
  static testing::TempDir dir;
  static const bool made = MakeDirectories(dir.File("text")).ok();
  TY_CHECK(made);
  SetFile(dir.File(has_numbers ? "text/train.bin" : "input.txt"), input.Rest());
  const auto dataset = data::OpenDataset(
      has_numbers ? "tokens" : "tinyshakespeare", data::Split::kTrain,
      {.dataset_dir = dir.path(), .path = "text", .context = context, .vocabulary = vocabulary});
  if (!dataset.ok()) return;
  std::vector<float> values(static_cast<size_t>(context));
  std::vector<int32_t> labels(static_cast<size_t>(context));
  for (int64_t i = 0; i < (*dataset)->size(); ++i) {
    if (!(*dataset)->Read(i, absl::MakeSpan(values), absl::MakeSpan(labels)).ok()) continue;
    for (const int32_t label : labels) TY_CHECK(label >= 0 && label < (*dataset)->classes());
  }
}

const Registration kTarget({.name = "tokens", .run = Run});

}  // namespace
}  // namespace trainyard::fuzz::tokens
