// Texts as token numbers, for language models: samples are windows of `context` tokens that follow
// one another without overlap, with the token that comes next at each position as its label. What
// is too little for a window at the end is passed over. Files are mapped and nothing of them is
// read ahead, so a token outside the vocabulary is found when its window is read.
//
//   `tokens`           `path`/train.bin and `path`/val.bin below the folder of data sets, each
//                      unsigned 16-bit numbers, low byte first: nothing else, as nanoGPT writes
//                      them, or behind llm.c's header of 256 32-bit numbers, which begins with
//                      20240520, version 1, number of tokens
//   `tinyshakespeare`  input.txt, a token a character, numbered as they are sorted. Its first nine
//                      tenths are for training
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/datasets.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_options.h"
#include "worker/data/mapped_file.h"

namespace trainyard::data {

inline constexpr absl::string_view kTinyShakespeareCharacters =
    "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static_assert(kTinyShakespeareCharacters.size() == datasets::kTinyShakespeare.classes);

// The place of a split's tokens in their file.
struct TokenRange {
  enum class Form { kUint16, kCharacters };
  std::string path;
  Form form = Form::kUint16;
  int64_t begin = 0;  // byte
  int64_t count = 0;  // tokens

  int64_t token_bytes() const { return form == Form::kUint16 ? 2 : 1; }
};

// Thread-safe.
class TokenDataset : public Dataset {
 public:
  // `range` lies in `file`, and has at least context + 1 tokens; those in [0, vocabulary) are good.
  TokenDataset(MappedFile file, TokenRange range, int64_t context, int64_t vocabulary);

  int64_t size() const override { return (range_.count - 1) / context(); }
  int64_t classes() const override { return vocabulary_; }
  const std::vector<int64_t>& sample_shape() const override { return sample_shape_; }
  int64_t labels_per_row() const override { return context(); }
  absl::Status Read(int64_t index, absl::Span<float> values,
                    absl::Span<int32_t> labels) const override;
  // Over all tokens; of files over 4 MiB over their length and 1,024 blocks that lie evenly, since
  // hashing tens of gigabytes would take longer than starting to train on them.
  const std::string& digest() const override { return digest_; }

 private:
  int64_t context() const { return sample_shape_[0]; }
  absl::StatusOr<int32_t> TokenAt(int64_t position) const;

  const MappedFile file_;
  const TokenRange range_;
  const std::vector<int64_t> sample_shape_;
  const int64_t vocabulary_;
  const std::string digest_;
};

// Checks what can be told without the file. INVALID_ARGUMENT for a path that leaves the folder of
// data sets, and where the network reads no tokens.
absl::Status CheckTokenOptions(absl::string_view name, const DatasetOptions& options);

// Opens one of the data sets above, whose options have been checked. Errors as OpenDataset's;
// INVALID_ARGUMENT for fewer tokens than one window needs; DATA_LOSS (CORRUPT_FILE) for a header
// that is none of these, and a file that is shorter or longer than its header says.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(absl::string_view name, Split split,
                                                    const DatasetOptions& options);

}  // namespace trainyard::data
