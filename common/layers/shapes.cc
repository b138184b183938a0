// Infers the output shape by one function for each kind of layer. The engine's GraphBuilder has the
// same rules beside its own shapes; tests compare both on random stacks.
#include "common/layers/shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/layers/window.h"

namespace trainyard::layers {
namespace {

// The largest number of elements that the engine gives a tensor.
constexpr int64_t kMaxElements = int64_t{1} << 40;
// No field may be larger. The rules of the proto file are tighter.
constexpr int64_t kMaxField = int64_t{1} << 24;

bool IsImage(const Source& source) {
  return source.shape.size() == 3;
}

bool AreFields(std::initializer_list<int64_t> positive) {
  return std::all_of(positive.begin(), positive.end(),
                     [](int64_t value) { return value >= 1 && value <= kMaxField; });
}

std::string Reads(const Source& source) {
  return absl::StrCat("reads ", ShapeText(source.shape), " of '", source.name, "', ",
                      source.is_tokens ? "numbers of tokens" : Nature(source.shape));
}

constexpr char kEmbedFirst[] = "; put `embedding` before it";

std::string WantImage(const Source& x) {
  if (IsImage(x) && !x.is_tokens) return "";
  return absl::StrCat(Reads(x), "; expected an image [channels, height, width]",
                      x.shape.size() == 1 && !x.is_tokens ? ": let it stand before `flatten`" : "");
}

std::string WantFeatures(const Source& x) {
  if (x.is_tokens) return absl::StrCat(Reads(x), kEmbedFirst);
  if (IsImage(x)) return absl::StrCat(Reads(x), "; put `flatten` before it");
  return "";
}

std::string WantSequence(const Source& x) {
  if (x.is_tokens) return absl::StrCat(Reads(x), kEmbedFirst);
  if (x.shape.size() == 2) return "";
  return absl::StrCat(Reads(x), "; expected a sequence [positions, features]");
}

std::string WantNumbers(const Source& x) {
  return x.is_tokens ? absl::StrCat(Reads(x), kEmbedFirst) : "";
}

// Joins two mistakes of one layer, either of which may be empty.
std::string Both(const std::string& first, const std::string& second) {
  return absl::StrCat(first, first.empty() || second.empty() ? "" : "; and it ", second);
}

std::string CheckWeight(const Shape& weight) {
  return IsTooLarge(weight)
             ? absl::StrCat("has a weight ", ShapeText(weight), ", which is too large")
             : "";
}

// Returns height and width after the window. The caller sets the channels.
Shaped Slide(const Source& x, const Window& window, int64_t channels) {
  const int64_t height = WindowCount(x.shape[1], window);
  const int64_t width = WindowCount(x.shape[2], window);
  if (height > 0 && width > 0) return {{channels, height, width}, ""};
  const int64_t reach = Reach(window);
  return {{},
          absl::StrCat("has a window of ", reach, "x", reach, ", which is larger than ",
                       ShapeText(x.shape), " of '", x.name, "' with padding ", window.padding,
                       "; use a smaller kernel, more padding, or smaller strides before it")};
}

// Has one method for each kind. The shape of the first source is known, and those of further
// sources too.
class Shaper {
 public:
  Shaper(const std::vector<Source>& sources, int64_t vocabulary)
      : sources_(sources), x_(sources[0]), vocabulary_(vocabulary) {}

  Shaped operator()(std::monostate) const { return {}; }

  Shaped operator()(const Conv2d& conv) const {
    if (std::string mistake = WantImage(x_); !mistake.empty()) return {{}, std::move(mistake)};
    if (!AreFields({conv.channels, conv.kernel, conv.stride, conv.dilation, conv.groups,
                    conv.padding + 1})) {
      return {};
    }
    const int64_t in = x_.shape[0];
    std::string mistake;
    if (in % conv.groups != 0 || conv.channels % conv.groups != 0) {
      mistake = absl::StrCat("has ", conv.groups, " groups, which must divide the ", in,
                             " channels of '", x_.name, "' and its own ", conv.channels);
    } else {
      mistake = CheckWeight({conv.channels, in / conv.groups, conv.kernel, conv.kernel});
    }
    const Shaped slid = Slide(x_,
                              {.kernel = conv.kernel,
                               .stride = conv.stride,
                               .padding = conv.padding,
                               .dilation = conv.dilation},
                              conv.channels);
    return {slid.output, Both(mistake, slid.mistake)};
  }

  Shaped operator()(const Linear& linear) const {
    const std::string mistake = WantFeatures(x_);
    if (!AreFields({linear.features})) return {{}, mistake};
    if (x_.is_tokens) return {{x_.shape[0], linear.features}, mistake};
    if (IsImage(x_)) return {{linear.features}, mistake};
    Shape output = x_.shape;
    output.back() = linear.features;
    return {output, CheckWeight({linear.features, x_.shape.back()})};
  }

  Shaped operator()(const BatchNorm&) const { return Keep(WantImage(x_)); }
  Shaped operator()(const LayerNorm&) const { return Keep(WantFeatures(x_)); }
  Shaped operator()(const GroupNorm& norm) const {
    std::string mistake = WantImage(x_);
    if (mistake.empty() && AreFields({norm.groups}) && x_.shape[0] % norm.groups != 0) {
      mistake = absl::StrCat("has ", norm.groups, " groups, which must divide the ", x_.shape[0],
                             " channels of '", x_.name, "'");
    }
    return Keep(std::move(mistake));
  }
  Shaped operator()(const Gelu&) const { return Keep(WantNumbers(x_)); }
  Shaped operator()(const Dropout&) const { return Keep(WantNumbers(x_)); }
  Shaped operator()(const MaxPool& pool) const {
    return Pool(pool.kernel, pool.stride, pool.padding, pool.ceil_mode);
  }
  Shaped operator()(const AvgPool& pool) const {
    return Pool(pool.kernel, pool.stride, pool.padding, /*ceil_mode=*/false);
  }

  Shaped operator()(const Lrn& lrn) const {
    return Keep(Both(WantImage(x_), lrn.k > 0 ? "" : "has k 0; expected above 0"));
  }

  Shaped operator()(const Upsample& upsample) const {
    if (std::string mistake = WantImage(x_); !mistake.empty()) return {{}, std::move(mistake)};
    if (!AreFields({upsample.scale})) return {};
    return {{x_.shape[0], x_.shape[1] * upsample.scale, x_.shape[2] * upsample.scale}, ""};
  }

  Shaped operator()(const Embedding& embedding) const {
    if (vocabulary_ == 0) {
      return {{}, "needs samples of tokens; set `vocabulary` beside the stack, and `input: [T]`"};
    }
    if (!x_.is_tokens) {
      return {{}, absl::StrCat(Reads(x_), "; only the sample holds tokens: write from: [input]")};
    }
    if (!AreFields({embedding.width})) return {};
    return {{x_.shape[0], embedding.width}, CheckWeight({vocabulary_, embedding.width})};
  }

  Shaped operator()(const Attention& attention) const {
    if (std::string mistake = WantSequence(x_); !mistake.empty()) return {{}, std::move(mistake)};
    if (!AreFields({attention.heads})) return {};
    const int64_t width = x_.shape[1];
    if (width % 3 != 0) {
      return {{},
              absl::StrCat("reads ", width, " features of '", x_.name,
                           "'; expected queries, keys and values side by side: a `linear` of three "
                           "times the width before it")};
    }
    Shaped shaped{{x_.shape[0], width / 3}, ""};
    if (width / 3 % attention.heads != 0) {
      shaped.mistake =
          absl::StrCat("has ", attention.heads, " heads, which must divide the width ", width / 3);
    }
    return shaped;
  }

  Shaped operator()(Plain plain) const {
    switch (plain) {
      case Plain::kRelu:
      case Plain::kTanh:
      case Plain::kSigmoid:
        return Keep(WantNumbers(x_));
      case Plain::kAdd:
        return Add();
      case Plain::kConcat:
        return Concat();
      case Plain::kGlobalAvgPool:
        if (std::string mistake = WantImage(x_); !mistake.empty()) return {{}, std::move(mistake)};
        return {{x_.shape[0], 1, 1}, ""};
      case Plain::kFlatten:
        return Flatten();
      case Plain::kPositionEmbedding:
        return Keep(WantSequence(x_));
    }
    return {};
  }

 private:
  Shaped Keep(std::string mistake) const { return {x_.shape, std::move(mistake)}; }

  Shaped Flatten() const {
    if (std::string mistake = WantNumbers(x_); !mistake.empty()) return {{}, std::move(mistake)};
    int64_t count = 1;
    for (const int64_t size : x_.shape) count *= size;
    return {{count}, ""};
  }

  Shaped Pool(int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) const {
    if (std::string mistake = WantImage(x_); !mistake.empty()) return {{}, std::move(mistake)};
    if (!AreFields({kernel, stride + 1, padding + 1})) return {};
    std::string mistake;
    if (kernel > kMaxPoolKernel) {
      mistake = absl::StrCat("has kernel ", kernel, "; expected at most ", kMaxPoolKernel);
      if (kernel >= std::max(x_.shape[1], x_.shape[2])) {
        absl::StrAppend(&mistake, ", or `global_avg_pool` for the mean of a whole channel");
      }
    }
    if (2 * padding > kernel) {
      mistake = Both(mistake, absl::StrCat("has padding ", padding,
                                           ", which is more than half of kernel ", kernel));
    }
    const Shaped slid = Slide(x_,
                              {.kernel = kernel,
                               .stride = stride == 0 ? kernel : stride,
                               .padding = padding,
                               .ceil_mode = ceil_mode},
                              x_.shape[0]);
    return {slid.output, Both(mistake, slid.mistake)};
  }

  Shaped Add() const {
    for (const Source& source : sources_) {
      if (std::string mistake = WantNumbers(source); !mistake.empty()) return {{}, mistake};
      if (source.shape == x_.shape) continue;
      return {x_.shape,
              absl::StrCat("cannot add ", ShapeText(source.shape), " of '", source.name, "' to ",
                           ShapeText(x_.shape), " of '", x_.name, "'; expected equal shapes",
                           IsImage(source) && IsImage(x_)
                               ? ": a `conv2d` with kernel 1, and the stride of the other "
                                 "way, brings one to the shape of the other"
                               : "")};
    }
    return {x_.shape, ""};
  }

  Shaped Concat() const {
    Shape total = x_.shape;
    total[0] = 0;
    for (const Source& source : sources_) {
      if (std::string mistake = WantNumbers(source); !mistake.empty()) return {{}, mistake};
      const Shape& added = source.shape;
      const bool fits = added.size() == total.size() && added.size() != 2 &&
                        std::equal(added.begin() + 1, added.end(), total.begin() + 1);
      if (!fits) {
        return {{},
                absl::StrCat("cannot join ", ShapeText(added), " of '", source.name, "', ",
                             Nature(added), ", to ", ShapeText(x_.shape), " of '", x_.name, "', ",
                             Nature(x_.shape),
                             "; expected images of equal height and width, or flat values")};
      }
      total[0] += added[0];
    }
    return {total, ""};
  }

  const std::vector<Source>& sources_;
  const Source& x_;
  const int64_t vocabulary_;
};

}  // namespace

Shaped ShapeOf(const Kind& kind, const std::vector<Source>& sources, int64_t vocabulary) {
  for (const Source& source : sources) {
    if (source.shape.empty()) return {};
  }
  return std::visit(Shaper(sources, vocabulary), kind);
}

std::string ShapeText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::string Nature(const Shape& shape) {
  return shape.size() == 3 ? "an image" : shape.size() == 2 ? "a sequence" : "a flat value";
}

bool IsTooLarge(const Shape& shape) {
  double count = 1;
  for (const int64_t size : shape) count *= static_cast<double>(size);
  return count > static_cast<double>(kMaxElements);
}

}  // namespace trainyard::layers
