// Opens and checks files of tokens. Whether a token is in the vocabulary is checked when the token
// is read, since reading all of a large file first would take minutes.
#include "worker/data/token_dataset.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/datasets.h"

namespace trainyard::data {
namespace {

// The number of tokens that 16 bits can represent.
constexpr int64_t kMaxVocabulary = 65'536;

// The header of llm.c has 256 numbers of 32 bits.
constexpr int64_t kHeaderBytes = 1024;
constexpr uint32_t kMagic = 20240520;
constexpr uint32_t kMagicOf32Bits = 20240801;
constexpr uint32_t kVersion = 1;

constexpr int64_t kHashedWhole = int64_t{4} << 20;
constexpr int64_t kHashedBlocks = 1024;
constexpr int64_t kHashedBlock = 4096;

uint32_t Byte(absl::string_view bytes, int64_t at) {
  return static_cast<uint8_t>(bytes[static_cast<size_t>(at)]);
}

uint32_t Uint32At(absl::string_view bytes, int64_t at) {
  return Byte(bytes, at) | Byte(bytes, at + 1) << 8 | Byte(bytes, at + 2) << 16 |
         Byte(bytes, at + 3) << 24;
}

// The token of each byte, or -1 if the text does not contain it.
std::array<int32_t, 256> NumberCharacters() {
  std::array<int32_t, 256> numbers{};
  numbers.fill(-1);
  for (size_t i = 0; i < kTinyShakespeareCharacters.size(); ++i) {
    numbers[static_cast<uint8_t>(kTinyShakespeareCharacters[i])] = static_cast<int32_t>(i);
  }
  return numbers;
}

std::string DigestOf(absl::string_view tokens) {
  const auto size = static_cast<int64_t>(tokens.size());
  if (size <= kHashedWhole) return ContentHash(tokens);
  ContentHasher hasher;
  hasher.Update(absl::StrCat(size, "\n"));
  for (int64_t i = 0; i < kHashedBlocks; ++i) {
    // The last block ends with the file.
    const int64_t begin = (size - kHashedBlock) / (kHashedBlocks - 1) * i;
    const int64_t at = i + 1 < kHashedBlocks ? begin : size - kHashedBlock;
    hasher.Update(tokens.substr(static_cast<size_t>(at), static_cast<size_t>(kHashedBlock)));
  }
  return hasher.Text();
}

absl::string_view BytesOf(const MappedFile& file, const TokenRange& range) {
  return file.bytes().substr(static_cast<size_t>(range.begin),
                             static_cast<size_t>(range.count * range.token_bytes()));
}

// Finds the tokens after llm.c's header. A file that does not begin with it contains only tokens.
absl::StatusOr<TokenRange> LocateTokens(const std::string& path, absl::string_view bytes) {
  TokenRange range{.path = path, .form = TokenRange::Form::kUint16};
  const auto size = static_cast<int64_t>(bytes.size());
  const uint32_t magic = size >= 4 ? Uint32At(bytes, 0) : 0;
  if (magic == kMagicOf32Bits) {
    return error::CorruptFile(
        path, absl::StrCat("byte 0: magic number ", magic, ", of tokens of 32 bits; expected ",
                           kMagic, ", of 16 bits"));
  }
  if (magic == kMagic) {
    if (size < kHeaderBytes) {
      return error::CorruptFile(path, absl::StrCat("byte ", size, ": the file ends; expected a ",
                                                   "header of ", kHeaderBytes, " bytes"));
    }
    if (Uint32At(bytes, 4) != kVersion) {
      return error::CorruptFile(
          path, absl::StrCat("byte 4: version ", Uint32At(bytes, 4), "; expected ", kVersion));
    }
    range.begin = kHeaderBytes;
    range.count = Uint32At(bytes, 8);
    const int64_t expected = kHeaderBytes + 2 * range.count;
    if (size != expected) {
      return error::CorruptFile(
          path, absl::StrCat("byte ", std::min(size, expected), ": the file has ", size,
                             " bytes; expected ", expected, ", since its header says ", range.count,
                             " tokens"));
    }
    return range;
  }
  if (size % 2 != 0) {
    return error::CorruptFile(path, absl::StrCat("byte ", size, ": the file ends in the middle of ",
                                                 "a token; expected an even number of bytes"));
  }
  range.count = size / 2;
  return range;
}

// Returns where a split lies in the whole text.
TokenRange PlainText(const std::string& path, Split split, int64_t size) {
  const int64_t train = datasets::TrainCharacters(size);
  return split == Split::kTrain
             ? TokenRange{path, TokenRange::Form::kCharacters, 0, train}
             : TokenRange{path, TokenRange::Form::kCharacters, train, size - train};
}

absl::StatusOr<std::string> FindFile(absl::string_view name, Split split,
                                     const DatasetOptions& options) {
  if (options.dataset_dir.empty()) {
    return error::DatasetNotFound(name, "it nowhere, since no folder of data sets is set");
  }
  std::vector<std::string> candidates;
  if (name == datasets::kTokens.name) {
    const char* file = split == Split::kTrain ? "train.bin" : "val.bin";
    candidates = {JoinPath(JoinPath(options.dataset_dir, options.path), file)};
  } else {
    candidates = {JoinPath(JoinPath(options.dataset_dir, name), "input.txt"),
                  JoinPath(options.dataset_dir, "input.txt")};
  }
  for (const std::string& candidate : candidates) {
    if (FileExists(candidate)) return candidate;
  }
  return error::DatasetNotFound(name, absl::StrJoin(candidates, ", "));
}

}  // namespace

TokenDataset::TokenDataset(MappedFile file, TokenRange range, int64_t context, int64_t vocabulary)
    : file_(std::move(file)),
      range_(std::move(range)),
      sample_shape_({context}),
      vocabulary_(vocabulary),
      digest_(DigestOf(BytesOf(file_, range_))) {
  TY_CHECK(context >= 1 && range_.count > context);
}

absl::StatusOr<int32_t> TokenDataset::TokenAt(int64_t position) const {
  const int64_t at = range_.begin + position * range_.token_bytes();
  const uint32_t first = Byte(file_.bytes(), at);
  if (range_.form == TokenRange::Form::kCharacters) {
    static const std::array<int32_t, 256> numbers = NumberCharacters();
    if (numbers[first] >= 0) return numbers[first];
    return error::CorruptFile(
        range_.path, absl::StrCat("byte ", at, ": character ", first, "; expected one of the ",
                                  kTinyShakespeareCharacters.size(), " that the text has"));
  }
  const uint32_t token = first | Byte(file_.bytes(), at + 1) << 8;
  if (token < vocabulary_) return static_cast<int32_t>(token);
  return error::CorruptFile(
      range_.path, absl::StrCat("byte ", at, ": token ", token, "; expected 0 to ", vocabulary_ - 1,
                                ", the vocabulary of the network"));
}

absl::Status TokenDataset::Read(int64_t index, absl::Span<float> values,
                                absl::Span<int32_t> labels) const {
  const auto count = static_cast<size_t>(context());
  TY_CHECK(index >= 0 && index < size() && values.size() == count && labels.size() == count);
  const int64_t begin = index * context();
  TY_ASSIGN_OR_RETURN(int32_t token, TokenAt(begin));
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(token);
    TY_ASSIGN_OR_RETURN(token, TokenAt(begin + static_cast<int64_t>(i) + 1));
    labels[i] = token;
  }
  return absl::OkStatus();
}

absl::Status CheckTokenOptions(absl::string_view name, const DatasetOptions& options) {
  if (options.context < 1) {
    return InvalidFields({{"spec.model", absl::StrCat("reads no tokens, which is what data set '",
                                                      name, "' has; use gpt2")}});
  }
  if (name == datasets::kTokens.name && !datasets::StaysBelow(options.path)) {
    return InvalidFields({{"spec.data.path", absl::StrCat("is '", options.path,
                                                          "'; expected a folder below that of the "
                                                          "data sets, such as 'webtext'")}});
  }
  return absl::OkStatus();
}

absl::Status FindTokens(absl::string_view name, Split split, const DatasetOptions& options) {
  return FindFile(name, split, options).status();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokens(absl::string_view name, Split split,
                                                    const DatasetOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::string path, FindFile(name, split, options));
  TY_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  if (split == Split::kTrain) file.ExpectRandomReads();
  TokenRange range;
  int64_t vocabulary = datasets::kTinyShakespeare.classes;
  if (name == datasets::kTokens.name) {
    TY_ASSIGN_OR_RETURN(range, LocateTokens(path, file.bytes()));
    vocabulary = options.vocabulary > 0 ? options.vocabulary : kMaxVocabulary;
  } else {
    range = PlainText(path, split, static_cast<int64_t>(file.bytes().size()));
  }
  if (range.count <= options.context) {
    return error::DatasetTooSmall(absl::StrCat("'", path, "' has ", range.count, " tokens for the ",
                                               split == Split::kTrain ? "training" : "test",
                                               " split; expected at least ", options.context + 1,
                                               ", one sample and the token after it"));
  }
  return std::make_unique<TokenDataset>(std::move(file), std::move(range), options.context,
                                        vocabulary);
}

}  // namespace trainyard::data
