// Lowers conv2d to oneDNN, unless lower_winograd.cc computes it.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "worker/engine/backend/cpu/lower_ops.h"
#include "worker/engine/backend/cpu/lower_winograd.h"

namespace trainyard::engine::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;
constexpr auto kWinograd = dnnl::algorithm::convolution_winograd;
// Training mode is used for evaluation, too. In inference mode oneDNN prefers NHWC, which is none
// of our layouts, and plain NCHW, the second choice, takes two to five times as long as blocks. The
// packed weights are then shared with training.
constexpr auto kForward = dnnl::prop_kind::forward_training;

// oneDNN's F(4x4, 3x3) beats its direct algorithm on one AVX-512 core from this size on. Below it,
// the transforms cost what the products save. It is for convolutions that our own algorithm
// (lower_winograd.cc) does not compute. The choice depends only on the shape, so that runs are
// alike.
constexpr int64_t kWinogradChannels = 32;
constexpr int64_t kWinogradChannelsOfParameterGradient = 64;
// The weights are transformed once for each execution, which this many tiles of 4x4 hide. The tiles
// are those of the largest batch: smaller batches are computed alike, to the bit and with the same
// packed weights.
constexpr int64_t kWinogradTiles = 64;

// The least that a part of a step with the same bits for any number of threads computes. A part of
// minimal filtering transforms the weights, which as many tiles hide. A part of a gradient of
// weights has sums of its own, which are added up over memory; transformed ones are four times as
// many.
constexpr int64_t kTilesOfPart = 256;
constexpr int64_t kPixelsOfPart = 1024;

// Rates how slow an implementation of oneDNN's is beside its own kernels for these formats.
constexpr int kReferenceLoops = 100;
constexpr int kUnfoldedProduct = 1;

struct Geometry {
  Dims strides, dilation, padding;

  explicit Geometry(const ConvAttributes& conv)
      : strides{conv.stride, conv.stride},
        dilation{conv.dilation - 1, conv.dilation - 1},  // oneDNN counts the gaps
        padding{conv.padding, conv.padding} {}
};

// Decides whether to compute a convolution between `x` and `y` by minimal filtering (Lavin & Gray
// 2016): 36 products for 4x4 results instead of 144. This is only for floats, because the sums
// would lose the 8 bits of bf16.
bool SuitsWinograd(const ConvAttributes& conv, const Layout& x, const Layout& y, int64_t rows,
                   int64_t channels_min) {
  const int64_t tiles = rows * ((y.height + 3) / 4) * ((y.width + 3) / 4);
  return x.type == NumberType::kF32 && conv.kernel == 3 && conv.stride == 1 && conv.dilation == 1 &&
         conv.groups == 1 && x.block == 16 && y.block == 16 &&
         std::min(x.channels, y.channels) >= channels_min && tiles >= kWinogradTiles;
}

bool HasBias(const Node& node) {
  return static_cast<int64_t>(node.inputs.size()) > 1 + node.conv().weights;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::primitive_attr ForwardAttributes(bool relu) {
  dnnl::primitive_attr attributes = UserScratchpad();
  if (relu) {
    dnnl::post_ops post_ops;
    post_ops.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(post_ops);
  }
  return attributes;
}

// Returns the parameters among a convolution's inputs from place `first` on: its weight, or the
// weights of those that were merged.
std::vector<ValueId> ConvWeights(const Node& node, size_t first = 1) {
  const auto begin = node.inputs.begin() + static_cast<int64_t>(first);
  return {begin, begin + node.conv().weights};
}

// Returns the dimensions of all weights together.
Dims ConvWeightDims(Lowering& lowering, const Node& node, const std::vector<ValueId>& weights) {
  const Shape& shape = lowering.value(weights[0]).shape;
  const int64_t groups = node.conv().groups;
  int64_t channels = 0;
  for (const ValueId weight : weights) {
    channels += lowering.value(weight).shape[0];
  }
  if (groups == 1) {
    return {channels, shape[1], shape[2], shape[3]};
  }
  return {groups, channels / groups, shape[1], shape[2], shape[3]};
}

Desc PlainConvWeight(Lowering& lowering, const Node& node, const std::vector<ValueId>& weights) {
  return {ConvWeightDims(lowering, node, weights), kF32,
          node.conv().groups == 1 ? Tag::oihw : Tag::goihw};
}

dnnl::convolution_backward_data::primitive_desc DescribeConvInputGradient(
    Lowering& lowering, const ConvAttributes& attributes, const ConvFormats& conv,
    const Dims& weight_dims) {
  const Geometry geometry(attributes);
  const auto describe = [&](dnnl::algorithm algorithm) {
    const dnnl::convolution_backward_data::desc desc(
        algorithm, conv.forward.src_desc(), Desc(weight_dims, DataType(lowering.type()), Tag::any),
        conv.forward.dst_desc(), geometry.strides, geometry.dilation, geometry.padding,
        geometry.padding);
    return dnnl::convolution_backward_data::primitive_desc(
        desc, UserScratchpad(), lowering.engine(), conv.forward, /*allow_empty=*/true);
  };
  if (SuitsWinograd(attributes, conv.input, conv.output, lowering.largest_rows(),
                    kWinogradChannels)) {
    auto winograd = describe(kWinograd);
    if (winograd) {
      return winograd;
    }
  }
  return describe(kDirect);
}

dnnl::convolution_backward_weights::primitive_desc DescribeConvParameterGradient(
    Lowering& lowering, const ConvAttributes& attributes, const ConvFormats& conv,
    const Dims& weight_dims, bool has_bias) {
  const Geometry geometry(attributes);
  const Desc any(weight_dims, kF32, Tag::any);
  const Desc bias = has_bias ? conv.forward.bias_desc() : Desc();
  const auto describe = [&](dnnl::algorithm algorithm) {
    const dnnl::convolution_backward_weights::desc desc(
        algorithm, conv.forward.src_desc(), any, bias, conv.forward.dst_desc(), geometry.strides,
        geometry.dilation, geometry.padding, geometry.padding);
    return dnnl::convolution_backward_weights::primitive_desc(
        desc, UserScratchpad(), lowering.engine(), conv.forward, /*allow_empty=*/true);
  };
  if (SuitsWinograd(attributes, conv.input, conv.output, lowering.largest_rows(),
                    kWinogradChannelsOfParameterGradient)) {
    auto winograd = describe(kWinograd);
    if (winograd) {
      return winograd;
    }
  }
  return describe(kDirect);
}

// Rates how slow the parts of the convolution that this step computes are between the formats of
// `conv`. 0 is the best.
int Slowness(Lowering& lowering, const Node& node, const ConvFormats& conv, bool inference) {
  const auto rate = [](const std::string& implementation) {
    return absl::StartsWith(implementation, "ref")     ? kReferenceLoops
           : absl::StrContains(implementation, "gemm") ? kUnfoldedProduct
                                                       : 0;
  };
  int slowness = rate(conv.forward.impl_info_str());
  if (inference) {
    return slowness;
  }
  const Dims weight_dims = ConvWeightDims(lowering, node, ConvWeights(node));
  const auto weights =
      DescribeConvParameterGradient(lowering, node.conv(), conv, weight_dims, HasBias(node));
  slowness += weights ? rate(weights.impl_info_str()) : kReferenceLoops;
  const bool has_input_gradient =
      std::any_of(lowering.step().graph.nodes.begin(), lowering.step().graph.nodes.end(),
                  [&](const Node& other) {
                    return other.op == OpKind::kConv2dInputGradient && other.name == node.name;
                  });
  if (has_input_gradient) {
    const auto data = DescribeConvInputGradient(lowering, node.conv(), conv, weight_dims);
    slowness += data ? rate(data.impl_info_str()) : kReferenceLoops;
  }
  return slowness;
}

// Tries oneDNN's own choice of formats first. Then tries others, and plain NCHW, which always
// exists, if the choice is none of our layouts, or has only reference loops for a gradient (AVX2
// with one input channel, bf16 with 2 to 15: 100 times slower and more).
ConvFormats ChooseConv(Lowering& lowering, const Node& node, bool inference) {
  const Geometry geometry(node.conv());
  const Layout x = lowering.Stored(lowering.layout(node.inputs[0]));
  const Layout y = lowering.StoredPlain(node.outputs[0]);
  const auto type = DataType(lowering.type());
  const Desc weight(ConvWeightDims(lowering, node, ConvWeights(node)), type, Tag::any);
  const bool has_bias = HasBias(node);
  const Desc bias = has_bias ? Desc({y.channels}, kF32, Tag::x) : Desc();
  std::vector<std::pair<Desc, Desc>> choices = {
      {Desc(RowDims(x, lowering.rows()), type, Tag::any),
       Desc(RowDims(y, lowering.rows()), type, Tag::any)}};
  if (lowering.type() == NumberType::kBf16 && node.conv().groups == 1) {
    Layout x_blocks = x;
    Layout y_blocks = y;
    x_blocks.block = y_blocks.block = 16;
    choices.emplace_back(Describe(x.Plain(), lowering.rows()), Describe(y_blocks, lowering.rows()));
    choices.emplace_back(Describe(x_blocks, lowering.rows()), Describe(y_blocks, lowering.rows()));
  }
  choices.emplace_back(Describe(x.Plain(), lowering.rows()), Describe(y, lowering.rows()));
  ConvFormats best;
  int best_cost = -1;
  for (const auto& [source, target] : choices) {
    const dnnl::convolution_forward::desc desc(kForward, kDirect, source, weight, bias, target,
                                               geometry.strides, geometry.dilation,
                                               geometry.padding, geometry.padding);
    ConvFormats conv;
    conv.forward = dnnl::convolution_forward::primitive_desc(
        desc, ForwardAttributes(node.relu), lowering.engine(), /*allow_empty=*/true);
    if (!conv.forward ||
        !FindLayout(conv.forward.src_desc(), x.Plain(), lowering.rows(), &conv.input) ||
        !FindLayout(conv.forward.dst_desc(), y, lowering.rows(), &conv.output)) {
      continue;
    }
    const int cost = Slowness(lowering, node, conv, inference);
    if (best_cost < 0 || cost < best_cost) {
      best = conv;
      best_cost = cost;
    }
    if (cost == 0) {
      break;
    }
  }
  if (best_cost >= 0) {
    return best;
  }
  CheckFailed(__FILE__, __LINE__, "oneDNN refuses plain formats: " + node.name);
}

// Returns the descriptors that compute it between the formats of `conv`, with another algorithm if
// that is faster.
dnnl::convolution_forward::primitive_desc DescribeConv(Lowering& lowering, const Node& node,
                                                       const ConvFormats& conv) {
  if (!SuitsWinograd(node.conv(), conv.input, conv.output, lowering.largest_rows(),
                     kWinogradChannels)) {
    return conv.forward;
  }
  const Geometry geometry(node.conv());
  const Desc weight(ConvWeightDims(lowering, node, ConvWeights(node)), kF32, Tag::any);
  const dnnl::convolution_forward::desc desc(kForward, kWinograd, conv.forward.src_desc(), weight,
                                             conv.forward.bias_desc(), conv.forward.dst_desc(),
                                             geometry.strides, geometry.dilation, geometry.padding,
                                             geometry.padding);
  const dnnl::convolution_forward::primitive_desc winograd(desc, ForwardAttributes(node.relu),
                                                           lowering.engine(), /*allow_empty=*/true);
  return winograd ? winograd : conv.forward;
}

// Returns the formats for a part of the rows. They are those of all rows.
ConvFormats ForRows(Lowering& lowering, const Node& node, const ConvFormats& conv, int64_t rows) {
  if (rows == lowering.rows()) return conv;
  const Geometry geometry(node.conv());
  ConvFormats part = conv;
  const Desc weight(conv.forward.weights_desc().dims(), DataType(lowering.type()), Tag::any);
  const dnnl::convolution_forward::desc desc(kForward, kDirect, Describe(conv.input, rows), weight,
                                             conv.forward.bias_desc(), Describe(conv.output, rows),
                                             geometry.strides, geometry.dilation, geometry.padding,
                                             geometry.padding);
  part.forward = dnnl::convolution_forward::primitive_desc(desc, ForwardAttributes(node.relu),
                                                           lowering.engine());
  return part;
}

// Returns the rows of at least so many pixels of the output, or of so many tiles of 4x4 pixels if
// it is computed `by_tiles`.
int64_t RowsMin(const Layout& output, bool by_tiles, int64_t pixels) {
  const int64_t of_row = by_tiles ? ((output.height + 3) / 4) * ((output.width + 3) / 4)
                                  : output.height * output.width;
  const int64_t least = by_tiles ? kTilesOfPart : pixels;
  return (least + of_row - 1) / of_row;
}

bool IsWinograd(Lowering& lowering, const Node& node, const ConvFormats& conv,
                int64_t channels_min) {
  return SuitsWinograd(node.conv(), conv.input, conv.output, lowering.largest_rows(), channels_min);
}

// Runs the parts into scratch memory, and copies from there to the arena's places for the gradients
// of each weight, and bias, of merged convolutions.
void EmitMergedParameterGradient(Lowering& lowering, const Node& node,
                                 std::vector<PrimitivePart> parts, std::vector<BufferId> buffers,
                                 const Desc& computed, const Desc& plain) {
  lowering.AddScratchpads(parts, buffers);
  const PartialSums sums = lowering.AddPartialSums(DNNL_ARG_DIFF_WEIGHTS, computed, parts, buffers);
  const bool is_plain = computed == plain;
  BufferId weights = sums.buffer;
  if (!is_plain) {
    weights = lowering.AddScratch(static_cast<int64_t>(plain.get_size()));
    buffers.push_back(weights);
  }
  const Lowering::Arguments unpacked = {{DNNL_ARG_FROM, lowering.Memory(computed, sums.buffer)},
                                        {DNNL_ARG_TO, lowering.Memory(plain, weights)}};
  const Unpacking unpack(lowering.engine(), computed, plain);
  PartialSums biases;
  const size_t members = static_cast<size_t>(node.conv().weights);
  if (node.outputs.size() > members) {
    biases = lowering.AddPartialSums(DNNL_ARG_DIFF_BIAS, Desc({plain.dims()[0]}, kF32, Tag::x),
                                     parts, buffers);
  }
  std::vector<absl::Span<float>> targets;  // in their order in the scratch memory
  for (const ValueId output : node.outputs) {
    const ReductionEntry& entry = lowering.GradientEntry(output);
    targets.emplace_back(lowering.GradientSums(output), static_cast<size_t>(entry.count));
  }
  Program* program = &lowering.program();
  const Kernels<float>* kernels = &BestKernels<float>();
  dnnl::stream stream = lowering.stream();
  const int threads = lowering.threads();
  const std::function<void()> execute = lowering.Execution(std::move(parts));
  auto run = [=](RunState& state) {
    execute();
    sums.Fold(*program, threads);
    biases.Fold(*program, threads);
    if (!is_plain) {
      unpack.Execute(stream, unpacked, /*add=*/false);
    }
    const float* from = program->ptr<float>(weights);
    for (size_t i = 0; i < targets.size(); ++i) {
      if (i == members) {
        from = program->ptr<float>(biases.buffer);
      }
      const auto count = static_cast<int64_t>(targets[i].size());
      if (state.accumulate) {
        kernels->add(targets[i].data(), from, targets[i].data(), count);
      } else {
        std::copy_n(from, count, targets[i].data());
      }
      from += count;
    }
  };
  lowering.EmitCall(node, run, buffers);
}

}  // namespace

void LowerConv2d(Lowering& lowering, const Node& node) {
  const bool inference = lowering.step().parameter_gradients.empty();
  const ConvFormats conv = ChooseConv(lowering, node, inference);
  lowering.convs()[node.name] = conv;
  lowering.SetLayout(node.outputs[0], conv.output);
  if (const auto shape = FindWinograd(lowering, node, conv)) {
    return LowerConvByWinograd(lowering, node, *shape);
  }
  const BufferId x = lowering.In(node.inputs[0], conv.input);
  const BufferId y = lowering.BufferOf(node.outputs[0]);
  const std::vector<ValueId> weights = ConvWeights(node);
  const auto describe = [&](int64_t rows) {
    return DescribeConv(lowering, node, ForRows(lowering, node, conv, rows));
  };
  const auto arguments = [&](const auto& described, const RowPart& part) {
    Lowering::Arguments made = {
        {DNNL_ARG_SRC, lowering.Memory(described.src_desc(), x, part.begin * conv.input.bytes())},
        {DNNL_ARG_WEIGHTS,
         lowering.Packed(lowering.Parameters(weights), PlainConvWeight(lowering, node, weights),
                         described.weights_desc())},
        {DNNL_ARG_DST, lowering.Memory(described.dst_desc(), y, part.begin * conv.output.bytes())}};
    if (HasBias(node)) {
      const Desc& bias = described.bias_desc();
      made.insert({DNNL_ARG_BIAS,
                   lowering.Packed(lowering.Parameters(ConvWeights(node, 1 + weights.size())), bias,
                                   bias)});
    }
    return made;
  };
  const int64_t rows_min =
      RowsMin(conv.output, IsWinograd(lowering, node, conv, kWinogradChannels), 1);
  lowering.EmitParts(
      node,
      MakeParts<dnnl::convolution_forward>(lowering.PartRows(node, rows_min), describe, arguments),
      {x, y});
}

void LowerConv2dInputGradient(Lowering& lowering, const Node& node) {
  const ConvFormats& conv = lowering.convs().at(node.name);
  if (const auto shape = FindWinograd(lowering, node, conv)) {
    return LowerConvInputGradientByWinograd(lowering, node, *shape);
  }
  const std::vector<ValueId> weights = ConvWeights(node);
  lowering.SetLayout(node.outputs[0], conv.input);
  const BufferId dy = lowering.In(node.inputs[0], conv.output);
  const BufferId dx = lowering.BufferOf(node.outputs[0]);
  const auto describe = [&](int64_t rows) {
    return DescribeConvInputGradient(lowering, node.conv(), ForRows(lowering, node, conv, rows),
                                     ConvWeightDims(lowering, node, weights));
  };
  const auto arguments = [&](const auto& described, const RowPart& part) {
    return Lowering::Arguments{
        {DNNL_ARG_DIFF_DST,
         lowering.Memory(described.diff_dst_desc(), dy, part.begin * conv.output.bytes())},
        {DNNL_ARG_WEIGHTS,
         lowering.Packed(lowering.Parameters(weights), PlainConvWeight(lowering, node, weights),
                         described.weights_desc())},
        {DNNL_ARG_DIFF_SRC,
         lowering.Memory(described.diff_src_desc(), dx, part.begin * conv.input.bytes())}};
  };
  const int64_t rows_min =
      RowsMin(conv.output, IsWinograd(lowering, node, conv, kWinogradChannels), 1);
  lowering.EmitParts(node,
                     MakeParts<dnnl::convolution_backward_data>(lowering.PartRows(node, rows_min),
                                                                describe, arguments),
                     {dy, dx});
}

void LowerConv2dParameterGradient(Lowering& lowering, const Node& node) {
  const ConvFormats& conv = lowering.convs().at(node.name);
  if (const auto shape = FindWinograd(lowering, node, conv)) {
    return LowerConvParameterGradientByWinograd(lowering, node, *shape);
  }
  std::vector<ValueId> weights;
  for (int64_t i = 0; i < node.conv().weights; ++i) {
    weights.push_back(lowering.value(node.outputs[static_cast<size_t>(i)]).primal);
  }
  const BufferId dy = lowering.In(node.inputs[0], conv.output);
  const BufferId x = lowering.In(node.inputs[1], conv.input);
  Desc computed;
  const auto describe = [&](int64_t rows) {
    const auto described = DescribeConvParameterGradient(
        lowering, node.conv(), ForRows(lowering, node, conv, rows),
        ConvWeightDims(lowering, node, weights), node.outputs.size() > weights.size());
    TY_CHECK(computed.is_zero() || computed == described.diff_weights_desc());
    computed = described.diff_weights_desc();
    return described;
  };
  const auto arguments = [&](const auto& described, const RowPart& part) {
    return Lowering::Arguments{
        {DNNL_ARG_DIFF_DST,
         lowering.Memory(described.diff_dst_desc(), dy, part.begin * conv.output.bytes())},
        {DNNL_ARG_SRC, lowering.Memory(described.src_desc(), x, part.begin * conv.input.bytes())}};
  };
  const bool is_winograd = IsWinograd(lowering, node, conv, kWinogradChannelsOfParameterGradient);
  std::vector<PrimitivePart> parts = MakeParts<dnnl::convolution_backward_weights>(
      lowering.PartRows(node, RowsMin(conv.output, is_winograd, kPixelsOfPart)), describe,
      arguments);
  const Desc plain = PlainConvWeight(lowering, node, weights);
  if (weights.size() == 1) {
    lowering.EmitParameterGradient(node, std::move(parts), {dy, x}, computed, plain);
  } else {
    EmitMergedParameterGradient(lowering, node, std::move(parts), {dy, x}, computed, plain);
  }
}

}  // namespace trainyard::engine::cpu
