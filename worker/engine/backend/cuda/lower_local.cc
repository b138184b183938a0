// Lowers ops that look at one element or one pixel at a time, and changes of layout.
#include "worker/engine/backend/cuda/kernels/elementwise.h"
#include "worker/engine/backend/cuda/lower_ops.h"
#include "worker/engine/graph/dropout.h"

namespace trainyard::engine::cuda {
namespace {

absl::Status LowerUnary(Lowering& lowering, const Node& node, Unary op) {
  lowering.EmitMap<1>(node, [op](const MapViews<1>& at) {
    UnaryForward(op, at.in[0], at.out, at.pixels, at.channels, at.clears_padding, at.stream);
  });
  return absl::OkStatus();
}

absl::Status LowerUnaryGradient(Lowering& lowering, const Node& node, Unary op) {
  lowering.EmitMap<2>(node, [op](const MapViews<2>& at) {
    UnaryGradient(op, at.in[0], at.in[1], at.out, at.pixels, at.channels, at.stream,
                  at.clears_padding);
  });
  return absl::OkStatus();
}

LrnParameters ParametersOf(const layers::Lrn& lrn) {
  return {lrn.size, static_cast<float>(lrn.alpha), static_cast<float>(lrn.beta),
          static_cast<float>(lrn.k)};
}

Unary GeluOf(const Node& node) {
  return node.layer<layers::Gelu>().tanh ? Unary::kGeluTanh : Unary::kGelu;
}

}  // namespace

absl::Status LowerRelu(Lowering& lowering, const Node& node) {
  return LowerUnary(lowering, node, Unary::kRelu);
}

absl::Status LowerTanh(Lowering& lowering, const Node& node) {
  return LowerUnary(lowering, node, Unary::kTanh);
}

absl::Status LowerSigmoid(Lowering& lowering, const Node& node) {
  return LowerUnary(lowering, node, Unary::kSigmoid);
}

absl::Status LowerGelu(Lowering& lowering, const Node& node) {
  return LowerUnary(lowering, node, GeluOf(node));
}

absl::Status LowerReluGradient(Lowering& lowering, const Node& node) {
  return LowerUnaryGradient(lowering, node, Unary::kRelu);
}

absl::Status LowerTanhGradient(Lowering& lowering, const Node& node) {
  return LowerUnaryGradient(lowering, node, Unary::kTanh);
}

absl::Status LowerSigmoidGradient(Lowering& lowering, const Node& node) {
  return LowerUnaryGradient(lowering, node, Unary::kSigmoid);
}

absl::Status LowerGeluGradient(Lowering& lowering, const Node& node) {
  return LowerUnaryGradient(lowering, node, GeluOf(node));
}

absl::Status LowerAdd(Lowering& lowering, const Node& node) {
  lowering.EmitMap<2>(node, [](const MapViews<2>& at) {
    Add(at.in[0], at.in[1], at.out, at.pixels, at.channels, at.stream, at.clears_padding);
  });
  return absl::OkStatus();
}

absl::Status LowerDropout(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const uint32_t layer = node.dropout().layer;
  const uint32_t threshold = DropoutThreshold(node.dropout());
  const auto scale = static_cast<float>(1 / (1 - node.dropout().rate));
  const int64_t pixels = lowering.PixelsPerRow(output);
  const int64_t rows = lowering.rows();
  // Elements of a sequence are counted in memory order, those of an image channel by channel.
  const bool counts_by_pixel = !lowering.IsImage(output);
  lowering.EmitMap<1>(node, [=](const MapViews<1>& at) {
    Dropout(at.in[0], at.out, rows, pixels, at.channels, layer, threshold, scale, at.control,
            at.stream, at.clears_padding, counts_by_pixel);
  });
  return absl::OkStatus();
}

absl::Status LowerLrn(Lowering& lowering, const Node& node) {
  const LrnParameters lrn = ParametersOf(node.layer<layers::Lrn>());
  lowering.EmitMap<1>(node, [=](const MapViews<1>& at) {
    LrnForward(lrn, at.in[0], at.out, at.pixels, at.channels, at.stream, at.clears_padding);
  });
  return absl::OkStatus();
}

absl::Status LowerLrnGradient(Lowering& lowering, const Node& node) {
  const LrnParameters lrn = ParametersOf(node.layer<layers::Lrn>());
  lowering.EmitMap<2>(node, [=](const MapViews<2>& at) {
    LrnGradient(lrn, at.in[0], at.in[1], at.out, at.pixels, at.channels, at.stream,
                at.clears_padding);
  });
  return absl::OkStatus();
}

// A single pixel needs no change. A sequence has the layout of its features.
absl::Status LowerFlatten(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const ValueId input = node.inputs[0];
  const Place x = lowering.PlaceOf(input);
  if (lowering.PixelsPerRow(input) == 1 || !lowering.IsImage(input)) {
    Place flat = x;
    if (lowering.PixelsPerRow(input) > 1) flat.stride = lowering.Channels(output);
    lowering.SharePlace(output, flat);
    return absl::OkStatus();
  }
  const Place y = lowering.MakePlace(output, x.type);
  const ImageShape shape = lowering.Image(input);
  lowering.EmitKernel(node,
                      [=, program = &lowering.program()](const Enqueue& how) {
                        FlattenImages(program->At(x), program->At(y), shape, how.stream);
                      },
                      {x.buffer, y.buffer});
  return absl::OkStatus();
}

absl::Status LowerFlattenGradient(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const Place dy = lowering.PlaceOf(node.inputs[0]);
  const bool fits =
      lowering.PixelsPerRow(output) == 1
          ? !lowering.IsImage(output) ||
                dy.stride >= PaddedChannels(lowering.Channels(output), dy.type)
          : !lowering.IsImage(output) && dy.stride == lowering.Channels(node.inputs[0]);
  if (fits && (lowering.PixelsPerRow(output) > 1 || dy.stride == lowering.Channels(output) ||
               !lowering.IsImage(output))) {
    Place home = dy;
    if (lowering.PixelsPerRow(output) > 1) home.stride = lowering.Channels(output);
    lowering.SharePlace(output, home);
    return absl::OkStatus();
  }
  const Place dx = lowering.MakePlace(output, lowering.target().type);
  const int64_t pixels = lowering.Pixels(output);
  const int64_t channels = lowering.Channels(output);
  if (!lowering.IsImage(output)) {
    // The features have padded rows, so they are copied position by position.
    const int64_t positions = lowering.PixelsPerRow(output);
    const int64_t rows = lowering.rows();
    lowering.EmitKernel(
        node,
        [=, program = &lowering.program()](const Enqueue& how) {
          for (int64_t t = 0; t < positions; ++t) {
            View from = program->At(dy);
            View to = program->At(dx);
            from.data = static_cast<std::byte*>(from.data) + t * channels * SizeOf(from.type);
            to.data = static_cast<std::byte*>(to.data) + t * channels * SizeOf(to.type);
            to.stride = positions * channels;
            Copy(from, to, rows, channels, false, how.stream);
          }
        },
        {dy.buffer, dx.buffer}, {.kernels = positions});
    return absl::OkStatus();
  }
  const ImageShape shape = lowering.Image(output);
  const bool clears = lowering.ClearsPadding(dx, output);
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        if (shape.height * shape.width == 1) {
          Copy(program->At(dy), program->At(dx), pixels, channels, clears, how.stream);
        } else {
          UnflattenImages(program->At(dy), program->At(dx), shape, clears, how.stream);
        }
      },
      {dy.buffer, dx.buffer});
  return absl::OkStatus();
}

absl::Status LowerConcat(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  if (!lowering.HasPlace(output)) lowering.MakePlace(output, lowering.target().type);
  const Place y = lowering.PlaceOf(output);
  struct Copied {
    Place from, to;
    int64_t channels;
  };
  std::vector<Copied> parts;
  Buffers buffers = {y.buffer};
  int64_t first_channel = 0;
  for (const ValueId input : node.inputs) {
    const bool lies_there = lowering.IsPart(input);
    Place to = y;
    to.offset += first_channel;
    first_channel += lowering.Channels(input);
    if (!lies_there) {
      parts.push_back({lowering.PlaceOf(input), to, lowering.Channels(input)});
      buffers.push_back(lowering.PlaceOf(input).buffer);
    }
  }
  if (parts.empty()) return absl::OkStatus();
  const int64_t pixels = lowering.Pixels(output);
  // If there is padding, no part lies in place.
  const bool clears = lowering.ClearsPadding(y, output);
  const int64_t bytes = pixels * y.stride * SizeOf(y.type);
  Traffic traffic = {.kernels = static_cast<int64_t>(parts.size()) + (clears ? 1 : 0),
                     .bytes = clears ? static_cast<double>(bytes) : 0,
                     .has_tensors = false};
  for (const Copied& part : parts) {
    traffic.bytes += static_cast<double>(pixels * part.channels) *
                     static_cast<double>(SizeOf(part.from.type) + SizeOf(y.type));
  }
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        if (clears) {
          (void)cudaMemsetAsync(program->At(y).data, 0, static_cast<size_t>(bytes), how.stream);
        }
        for (const Copied& part : parts) {
          Copy(program->At(part.from), program->At(part.to), pixels, part.channels, false,
               how.stream);
        }
      },
      buffers, traffic);
  return absl::OkStatus();
}

absl::Status LowerSlice(Lowering& lowering, const Node& node) {
  const ValueId output = node.outputs[0];
  const int64_t vector = kVectorBytes / SizeOf(lowering.target().type);
  Place from = lowering.PlaceOf(node.inputs[0]);
  from.offset += node.slice().first_channel;
  const bool is_aligned =
      node.slice().first_channel % vector == 0 && lowering.Channels(output) % vector == 0;
  if (node.slice().is_view && is_aligned) {
    lowering.SharePlace(output, from);
    return absl::OkStatus();
  }
  const Place to = lowering.MakePlace(output, lowering.target().type);
  const int64_t pixels = lowering.Pixels(output);
  const int64_t channels = lowering.Channels(output);
  const bool clears = lowering.ClearsPadding(to, output);
  lowering.EmitKernel(
      node,
      [=, program = &lowering.program()](const Enqueue& how) {
        Copy(program->At(from), program->At(to), pixels, channels, clears, how.stream);
      },
      {from.buffer, to.buffer}, {.bytes = 2 * lowering.Bytes(output), .has_tensors = false});
  return absl::OkStatus();
}

}  // namespace trainyard::engine::cuda
