// Reads texts as token numbers, for language models. Samples are windows of `context` tokens that
// follow one another without overlap, with the next token at each position as its label. Tokens at
// the end that do not fill a window are skipped. Files are mapped and not read ahead, so a token
// outside the vocabulary is found when its window is read.
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
  int64_t begin = 0;  // in bytes
  int64_t count = 0;  // in tokens

  int64_t token_bytes() const { return form == Form::kUint16 ? 2 : 1; }
};

// A data set of tokens. It is thread-safe.
class TokenDataset : public Dataset {
 public:
  // `range` must lie in `file`, and have at least context + 1 tokens. Tokens in [0, vocabulary) are
  // valid.
  TokenDataset(MappedFile file, TokenRange range, int64_t context, int64_t vocabulary);

  int64_t size() const override { return (range_.count - 1) / context(); }
  int64_t classes() const override { return vocabulary_; }
  const std::vector<int64_t>& sample_shape() const override { return sample_shape_; }
  int64_t labels_per_row() const override { return context(); }
  absl::Status Read(int64_t index, absl::Span<float> values,
                    absl::Span<int32_t> labels) const override;
  // Returns a digest over all tokens. For files over 4 MiB it covers their length and 1,024 blocks
  // that are spread evenly, since hashing tens of gigabytes would take longer than starting to
  // train on them.
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

// Checks what can be checked without the file. Returns INVALID_ARGUMENT for a path that leaves the
// folder of data sets, and if the network reads no tokens.
absl::Status CheckTokenOptions(absl::string_view name, const DatasetOptions& options);

// Opens one of the data sets above, whose options must have been checked. The errors are those of
// OpenDataset, INVALID_ARGUMENT for fewer tokens than one window needs, and DATA_LOSS
// (CORRUPT_FILE) for an unknown header, or a file whose length differs from what its header says.
absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(absl::string_view name, Split split,
                                                    const DatasetOptions& options);
// Does the part of FindDataset for this kind.
absl::Status FindTokens(absl::string_view name, Split split, const DatasetOptions& options);

}  // namespace trainyard::data
