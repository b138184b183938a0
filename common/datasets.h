// States facts about the data sets that a spec may name, and is the only place for them: the server
// checks specs against them, the trainer reads the files by them, and the client fetches the
// published ones.
//
// proto/trainyard/v1/training.proto lists the same names, since editors read them out of the JSON
// Schema; a test keeps both lists alike.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainyard::datasets {

struct Facts {
  // Says where the samples come from.
  enum class Source {
    kPublished,   // files that anyone can fetch and that never change
    kGenerated,   // computed by the trainer
    kUserFolder,  // a folder that the spec names, below the worker's folder of data sets
  };
  enum class Kind { kImages, kTokens };

  absl::string_view name;
  Source source = Source::kPublished;
  Kind kind = Kind::kImages;
  // The numbers of samples. They are 0 for tokens, where they depend on the spec, and for data sets
  // of which only the files tell.
  int64_t train_size = 0;
  int64_t test_size = 0;
  // The number of different labels, or for tokens the size of the vocabulary. It is 0 if only the
  // files tell.
  int64_t classes = 0;
  int64_t channels = 0;
  int64_t side = 0;  // height and width in pixels; 0 if the spec chooses them

  constexpr bool has_tokens() const { return kind == Kind::kTokens; }
  constexpr bool is_generated() const { return source == Source::kGenerated; }
  // Returns channels, height and width.
  std::vector<int64_t> shape() const { return {channels, side, side}; }
};

inline constexpr Facts kCifar10 = {.name = "cifar10",
                                   .train_size = 50'000,
                                   .test_size = 10'000,
                                   .classes = 10,
                                   .channels = 3,
                                   .side = 32};
inline constexpr Facts kCifar100 = {.name = "cifar100",
                                    .train_size = 50'000,
                                    .test_size = 10'000,
                                    .classes = 100,
                                    .channels = 3,
                                    .side = 32};
inline constexpr Facts kFashionMnist = {.name = "fashion-mnist",
                                        .train_size = 60'000,
                                        .test_size = 10'000,
                                        .classes = 10,
                                        .channels = 1,
                                        .side = 28};
inline constexpr Facts kGlyphs = {.name = "glyphs",
                                  .source = Facts::Source::kGenerated,
                                  .train_size = 20'000,
                                  .test_size = 4'000,
                                  .classes = 10,
                                  .channels = 1,
                                  .side = 28};
inline constexpr Facts kImages = {
    .name = "images", .source = Facts::Source::kUserFolder, .channels = 3};
inline constexpr Facts kMnist = {.name = "mnist",
                                 .train_size = 60'000,
                                 .test_size = 10'000,
                                 .classes = 10,
                                 .channels = 1,
                                 .side = 28};
inline constexpr Facts kTinyShakespeare = {
    .name = "tinyshakespeare", .kind = Facts::Kind::kTokens, .classes = 65};
inline constexpr Facts kTokens = {
    .name = "tokens", .source = Facts::Source::kUserFolder, .kind = Facts::Kind::kTokens};

// The largest number of samples in a split of glyphs. They lie in memory: 750 MiB of pixels. The
// rules of data.train_size and data.test_size state the same number.
inline constexpr int64_t kGlyphSamplesMax = 1'000'000;
// The side of a sample of `images`, in pixels, where the spec does not give one.
inline constexpr int64_t kDefaultImageSize = 224;

// The length in characters of tinyshakespeare's text, input.txt of karpathy/char-rnn.
inline constexpr int64_t kTinyShakespeareLength = 1'115'394;
// Returns how many characters of a text are for training, as in nanoGPT. The rest is the test
// split.
constexpr int64_t TrainCharacters(int64_t length) {
  return length * 9 / 10;
}

// Returns all data sets, sorted by name.
absl::Span<const Facts> All();
// Returns null for an unknown name.
const Facts* Find(absl::string_view name);

// Returns true for a path that lies below the folder of data sets, and does not lead out of it.
bool StaysBelow(absl::string_view path);

}  // namespace trainyard::datasets
